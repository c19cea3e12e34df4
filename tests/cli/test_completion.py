"""`tfmon completion` in real shells: what Tab offers in bash, zsh and fish."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from pathlib import Path

import pyte
import pytest
from support.waiting import wait_for

from tfmon.cli.completion import _BY_NAME
from tfmon.probes.base import Gpu
from tfmon.probes.obstacles import GpuVisibility

ROOT = Path(__file__).parents[2]
TYPED = {
    "tfmon ra": "tfmon race",
    "tfmon race small-d": "tfmon race small-dense",
    "tfmon race small-dense --set pre": "--set prefetch=",
    "tfmon race small-dense --slic": "--slice",
    "tfmon race small-dense --lane node7/c": "--lane node7/cpu",
    "tfmon sweep small-dense --over pre": "--over prefetch=",
    "tfmon hosts vault": "tfmon hosts vault9",
    "tfmon doctor --host no": "--host node7",
    "tfmon replay la": "tfmon replay last",
}
"""What is typed before Tab, and what stands on the line then."""
SETTINGS = {
    "bash": {  # which takes `=` for the end of a word
        "tfmon race small-dense --lane cpu,bat": "--lane cpu,batch_size=",
        "tfmon sweep small-dense --on cpu,node7/c": "--on cpu,node7/cpu",
    },
    "zsh": {
        "tfmon race small-dense --set prefetch=au": "--set prefetch=auto",
        "tfmon race small-dense --lane cpu,prefetch=au": "--lane cpu,prefetch=auto",
    },
    "fish": {"tfmon race small-dense --set prefetch=au": "--set prefetch=auto"},  # Click cuts at a comma
}


def test_an_unknown_shell_is_refused(tfmon, monkeypatch):
    monkeypatch.setenv("SHELL", "/bin/csh")
    told = tfmon("completion")
    assert told.code == 2 and "there is no completion for csh" in told.err
    monkeypatch.setenv("SHELL", "/usr/bin/zsh")
    assert tfmon("completion").out.startswith("#compdef tfmon")


def test_the_devices_of_this_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    part = Gpu(0, "MIG-12345678-1111-2222-3333-444444444444", "NVIDIA H100 MIG 1g.10gb", 0, part_of="GPU-a")
    listed = (
        Gpu(0, "GPU-a", "NVIDIA H100", 0, instances=(part,)),
        Gpu(1, "GPU-b", "NVIDIA L4", 1),
    )
    seen = GpuVisibility("Linux", "x86_64", physical_gpus=listed)
    monkeypatch.setattr("tfmon.probes.gpus.read_visibility", lambda **_: seen)
    found = [(item.value, item.help) for item in _BY_NAME["lanes"](None, "")]
    two = ("2xcpu", "two logical devices of the CPU")
    assert found == [("cpu", ""), ("gpu:1", "NVIDIA L4"), ("MIG-12345678", "NVIDIA H100 MIG 1g.10gb"), two]
    assert [item.value for item in _BY_NAME["lane"](None, "M")] == ["MIG-12345678"]
    seen = GpuVisibility("Linux", "x86_64", physical_gpus=(listed[1], Gpu(2, "GPU-c", "NVIDIA L4", 2)))
    several = ["cpu", "gpu:0", "gpu:1", "gpu:0+1", "gpu:all", "2xgpu", "2xcpu"]
    assert [item.value for item in _BY_NAME["lanes"](None, "")] == several
    seen = GpuVisibility("Linux", "x86_64")
    assert [item.value for item in _BY_NAME["lanes"](None, "")] == ["cpu", "gpu:0", "2xcpu"]


SHELLS = {
    "bash": (["--norc", "-i"], 'eval "$(tfmon completion bash)"'),
    "zsh": (["-f", "-i"], 'autoload -Uz compinit; compinit -u -D; eval "$(tfmon completion zsh)"'),
    "fish": (["--no-config", "-i"], "tfmon completion fish | source"),
}


@pytest.mark.pty
@pytest.mark.parametrize("shell", list(SHELLS))
def test_tab_in_a_real_shell(shell, tmp_path):
    pexpect = pytest.importorskip("pexpect")
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    command = tmp_path / "tfmon"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m tfmon "$@"\n')
    command.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text("Host vault9 *.example.org\n  User me\n")
    (tmp_path / "settings.toml").write_text('[hosts.node7]\nrun = ["srun"]\n')
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "TERM": "xterm"}
    env["TFMON_CONFIG"] = str(tmp_path / "settings.toml")
    arguments, begin = SHELLS[shell]
    child = pexpect.spawn(shell, arguments, env=env, cwd=str(tmp_path), dimensions=(24, 160), encoding="utf-8")
    screen = pyte.Screen(160, 24)
    stream = pyte.Stream(screen)

    def shows(text: str) -> bool:
        with contextlib.suppress(pexpect.TIMEOUT):
            stream.feed(child.read_nonblocking(100_000, timeout=0.1))
        return any(text in line for line in screen.display)

    try:
        child.sendline(f"{begin}; echo rea''dy")
        wait_for(lambda: shows("ready"), what="the completion is there")
        for typed, wanted in (TYPED | SETTINGS[shell]).items():
            child.sendline("clear")
            wait_for(lambda: not shows("tfmon"), what="the screen is clear")
            child.send(f"{typed}\t")
            wait_for(lambda wanted=wanted: shows(wanted), what=f"{wanted} is on the line")
            child.send("\x15")
    finally:
        child.close(force=True)

"""`tfmon completion` in real shells: what Tab offers in bash, zsh and fish."""

import contextlib
import os
import shutil
import sys
from pathlib import Path

import pyte
import pytest
from support.slow import slow_except
from support.waiting import wait_for

TYPED = {
    "tfmon ra": "tfmon race",
    "tfmon race small-d": "tfmon race small-dense",
    "tfmon hosts no": "tfmon hosts node7",
    "tfmon race small-dense --slic": "--slice",
    "tfmon doctor --host no": "--host node7",
    "tfmon replay la": "tfmon replay last",
}
"""The text before Tab, and the expected line after it."""


def test_an_unknown_shell_is_refused(tfmon, monkeypatch):
    monkeypatch.setenv("SHELL", "/bin/csh")
    told = tfmon("completion")
    assert told.code == 2 and "there is no completion for csh" in told.err
    monkeypatch.setenv("SHELL", "/usr/bin/zsh")
    assert tfmon("completion").out.startswith("#compdef tfmon")


SHELLS = {
    "bash": (["--norc", "-i"], 'eval "$(tfmon completion bash)"'),
    "zsh": (["-f", "-i"], 'autoload -Uz compinit; compinit -u -D; eval "$(tfmon completion zsh)"'),
    "fish": (["--no-config", "-i"], "tfmon completion fish | source"),
}


@pytest.mark.pty
@pytest.mark.parametrize("shell", slow_except("bash", SHELLS))
def test_tab_in_a_real_shell(shell, tmp_path):
    pexpect = pytest.importorskip("pexpect")
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    command = tmp_path / "tfmon"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m tfmon "$@"\n')
    command.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    (tmp_path / "settings.toml").write_text('[hosts.node7]\nrun = ["srun"]\n')
    env = {**os.environ, "PATH": path, "HOME": str(tmp_path), "TERM": "xterm"}
    env |= {"PYTHONPATH": str(Path(__file__).parents[2]), "TFMON_CONFIG": str(tmp_path / "settings.toml")}
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
        for typed, wanted in TYPED.items():
            child.sendline("clear")
            wait_for(lambda: not shows("tfmon"), what="the screen is clear")
            child.send(f"{typed}\t")
            wait_for(lambda wanted=wanted: shows(wanted), what=f"{wanted} is on the line")
            child.send("\x15")
    finally:
        child.close(force=True)

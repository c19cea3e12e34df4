"""`tfmon completion` in real shells: what Tab offers in bash, zsh and fish."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ASKED = {
    "tfmon ra": {"race"},
    "tfmon race small-d": {"small-dense"},
    "tfmon race small-dense --set pre": {"prefetch="},
    "tfmon race small-dense --set graph=o": {"graph=on", "graph=off"},
    "tfmon race small-dense --lane cpu,bat": {"cpu,batch_size="},
    "tfmon race small-dense --lan": {"--lane"},
    "tfmon replay la": {"last"},
}
"""What stands on the line, and what Tab offers."""


def test_an_unknown_shell_is_refused(tfmon, monkeypatch):
    monkeypatch.setenv("SHELL", "/bin/csh")
    told = tfmon("completion")
    assert told.code == 2 and "there is no completion for csh" in told.err
    monkeypatch.setenv("SHELL", "/usr/bin/zsh")
    assert tfmon("completion").out.startswith("#compdef tfmon")


BASH = r"""
eval "$(tfmon completion bash)"
line=$1 ; COMP_WORDS=($line) ; COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_tfmon_completion tfmon "${COMP_WORDS[COMP_CWORD]}" ; printf '%s\n' "${COMPREPLY[@]}"
"""
ZSH = r"""
autoload -Uz compinit; compinit -u -D
compadd() { local -a got; got=("${(@P)@[-1]}"); print -l -- $got >&3 }
_describe() { local -a got; got=("${(@P)@[-1]}"); print -l -- ${got%%:*} >&3 }
eval "$(tfmon completion zsh)"
words=(${=1}); CURRENT=${#words}; exec 3>&1; _tfmon_completion
"""
FISH = r"""
tfmon completion fish | source
complete -C "$argv[1]" | string split -f1 \t
"""


@pytest.mark.process
@pytest.mark.parametrize(("shell", "script"), [("bash", BASH), ("zsh", ZSH), ("fish", FISH)])
def test_tab_in_a_real_shell(shell, script, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    command = tmp_path / "tfmon"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m tfmon "$@"\n')
    command.chmod(0o755)
    env = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
    }
    words = [shell, *(["-f"] if shell == "zsh" else ["--norc"] if shell == "bash" else ["--no-config"])]
    file = tmp_path / "script"
    file.write_text(script)
    for line, wanted in ASKED.items():
        done = subprocess.run(
            [*words, str(file), line], env=env, capture_output=True, text=True, timeout=60, check=False
        )
        assert wanted <= set(done.stdout.split()), f"{shell}: {line!r}: {done.stdout!r} {done.stderr!r}"

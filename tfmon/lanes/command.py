"""What a lane needs in its environment that is a user's own command."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tfmon
from tfmon.model.knobs import Settings
from tfmon.model.lane_pipes import HOLDER, SETTINGS, VARIABLE, LanePipes

SITE = Path(tfmon.__file__).parent / "script" / "site"
"""The folder with the sitecustomize that lets tfmon in."""


@dataclass(frozen=True, slots=True)
class Command:
    """A user's command, and what it runs on."""

    words: tuple[str, ...]
    device: str
    """`cpu` or `gpu`."""
    settings: Settings
    """Knobs that it is asked to have."""


def lock_file() -> tuple[int, str]:
    """Return a file that the lane's processes inherit, which no folder lists, and the token in it."""
    token = secrets.token_hex(8)
    with tempfile.TemporaryFile() as file:
        file.write(token.encode())
        file.flush()
        return os.dup(file.fileno()), token


def joining_environment(environment: Mapping[str, str], pipes: LanePipes, settings: Settings) -> dict[str, str]:
    """Return what is to be set so that a Python of the lane finds its pipes and its knobs."""
    before = environment.get("PYTHONPATH", "")
    path = os.pathsep.join([str(SITE), before]) if before else str(SITE)
    return {VARIABLE: pipes.text(), SETTINGS: json.dumps(settings), HOLDER: "", "PYTHONPATH": path}


# ---------------- ends the lane of a user's command if the monitor is killed and cannot do so itself


OWN_GROUP: dict[str, Any] = {"process_group": 0} if sys.version_info >= (3, 11) else {"preexec_fn": os.setpgrp}
ASK_S, TERM_S = 1.2, 0.7
"""How long a lane gets to end by itself, told through its pipe or by that pipe's end, and after SIGTERM."""
SCRIPT = f"""
trap '' HUP INT QUIT TERM TSTP
read -r over && exit
kill -s CONT -- "-$1"
sleep {ASK_S} || sleep 1
kill -s TERM -- "-$1" || exit
sleep {TERM_S} || sleep 1
kill -s KILL -- "-$1"
"""
"""`read` fails at the end of the pipe. Of POSIX's `sleep` only whole seconds can be asked."""


class Guard:
    """Guards one process group until it is dismissed.

    Thread: any.
    """

    def __init__(self, group: int) -> None:
        """Guard the group of that number; without a shell nothing is guarded."""
        self._shell: subprocess.Popen[bytes] | None = None
        with contextlib.suppress(OSError):
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", SCRIPT, "tfmon-guard", str(group)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                **OWN_GROUP,
            )

    def dismiss(self) -> None:
        """End the guard; the group's number may be another's soon."""
        if self._shell is not None:
            self._shell.kill()
            self._shell.wait()
            assert self._shell.stdin is not None
            self._shell.stdin.close()

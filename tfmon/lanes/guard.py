"""Ends the lane of a user's command if the monitor is killed and cannot do so itself.

A scenario's child sees to that by itself (`trainer.orphan`). A user's command cannot be asked to: it may be a
shell, whose children the kernel does not end with it; it may be a Python that is still loading its data and is no
lane yet; and its signals are its own. So a shell stands beside it that waits for the end of a pipe whose other end
only the monitor holds.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import Any

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

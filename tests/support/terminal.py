"""tfmon in an emulated terminal, so that the screen can be read."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence

import pexpect
import psutil
import pyte
from ptyprocess import PtyProcessError

COLUMNS, ROWS = 120, 36
WITHIN_S = 10.0
"""How soon every lane is gone, however tfmon ends: 3 s, and what a busy machine adds until a key is handled."""
RESTORED = ("\x1b[?1049l", "\x1b[?25h")
"""The main screen is back, and the cursor with it."""


def gone(processes: list[psutil.Process]) -> bool:
    """Return whether all processes end in time."""
    return not psutil.wait_procs(processes, timeout=WITHIN_S)[1]


def racing(display: str) -> bool:
    """Return whether the screen shows a lane that trains."""
    return bool(re.search(r"\d steps/s", display))


def terminal_environment(**environment: str) -> dict[str, str]:
    """Return the variables of a program in a terminal; its size is the terminal's, not the test runner's."""
    inherited = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
    return {**inherited, "TERM": "xterm-256color", **environment}


class Terminal:
    """A program, tfmon if not said otherwise, in an emulated terminal."""

    def __init__(self, *arguments: str, program: Sequence[str] = ("-m", "tfmon"), **environment: str) -> None:
        self.screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.Stream(self.screen)
        self.raw = ""
        self.process = pexpect.spawn(
            sys.executable,
            [*program, *arguments],
            dimensions=(ROWS, COLUMNS),
            env=terminal_environment(**environment),
            encoding="utf-8",
            codec_errors="replace",
        )

    def read(self) -> str:
        """Take in what was written since, and return the screen."""
        try:
            text = self.process.read_nonblocking(65_536, timeout=0.05)
        except (pexpect.TIMEOUT, pexpect.EOF):
            text = ""
        self.raw += text
        # pyte does not know the private form of `CSI u`, by which Textual asks for key reports.
        self._stream.feed(re.sub(r"\x1b\[[<>=?][0-9;]*u", "", text))
        return "\n".join(self.screen.display)

    def wait_for(self, shown: Callable[[str], object], timeout_s: float = 120) -> str:
        """Wait until the screen satisfies a condition, and return it."""
        deadline = time.monotonic() + timeout_s
        while not shown(display := self.read()):
            assert time.monotonic() < deadline, f"not seen within {timeout_s} s:\n{display}"
        return display

    def children(self, at_least: int = 2) -> list[psutil.Process]:
        """Wait until so many processes are started, and return them."""
        found: list[psutil.Process] = []

        def all_started(_: str) -> bool:
            found[:] = psutil.Process(self.process.pid).children(recursive=True)
            return len(found) >= at_least

        self.wait_for(all_started)
        return found

    def leave(self, code: int) -> str:
        """Quit with q, check that the terminal is as it was and no lane is left; return what was printed then."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        self.process.send("q")
        assert gone(children)
        assert self.wait_for_exit() == code
        assert all(sequence in self.raw for sequence in RESTORED)
        return self.raw.rsplit(RESTORED[0], 1)[1]

    def close(self) -> None:
        """End the program, if it runs, and let go of the terminal."""
        with contextlib.suppress(OSError, PtyProcessError, pexpect.ExceptionPexpect):
            if not self.process.closed:
                self.process.kill(signal.SIGKILL)
                self.process.close(force=True)

    def wait_for_exit(self) -> int | None:
        """Wait until the program has ended, and return its exit code."""
        deadline = time.monotonic() + 120
        while self.process.isalive():
            assert time.monotonic() < deadline, "tfmon did not end"
            self.read()
        before = -1
        while before != len(self.raw):
            before = len(self.raw)
            self.read()
        return self.process.exitstatus

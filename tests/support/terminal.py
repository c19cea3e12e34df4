"""tfmon in an emulated terminal, so that what stands on the screen can be read."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Sequence

import pexpect
import psutil
import pyte

COLUMNS, ROWS = 120, 36


class Terminal:
    """tfmon in a terminal that is emulated, so that what stands on the screen can be read."""

    def __init__(self, *arguments: str, program: Sequence[str] = ("-m", "tfmon"), **environment: str) -> None:
        self.screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.Stream(self.screen)
        self.raw = ""
        self.process = pexpect.spawn(
            sys.executable,
            [*program, *arguments],
            dimensions=(ROWS, COLUMNS),
            env={**os.environ, "TERM": "xterm-256color", **environment},
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

    def wait_for(self, shown: Callable[[str], object], timeout_s: float = 60) -> str:
        """Wait until the screen is as wished, and return it."""
        deadline = time.monotonic() + timeout_s
        while not shown(display := self.read()):
            assert time.monotonic() < deadline, f"not seen within {timeout_s} s:\n{display}"
        return display

    def children(self) -> list[psutil.Process]:
        """Wait until both lanes are started, and return their processes."""
        found: list[psutil.Process] = []

        def both(_: str) -> bool:
            found[:] = psutil.Process(self.process.pid).children(recursive=True)
            return len(found) >= 2

        self.wait_for(both)
        return found

    def wait_for_exit(self) -> int | None:
        """Wait until the program has ended, and return its exit code."""
        deadline = time.monotonic() + 10
        while self.process.isalive():
            assert time.monotonic() < deadline, "tfmon did not end"
            self.read()
        before = -1
        while before != len(self.raw):
            before = len(self.raw)
            self.read()
        return self.process.exitstatus

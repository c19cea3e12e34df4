"""A program in a terminal at the end of a link that may be slow."""

from __future__ import annotations

import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Sequence
from fcntl import ioctl
from pathlib import Path

import pyte

from support.terminal import terminal_environment
from support.waiting import LOOK_S, PATIENCE_S, wait_for

COLUMNS, ROWS = 120, 36


class Link:
    """A program in a terminal that takes so many bytes a second; None for all it gets, 0 for none."""

    def __init__(
        self,
        command: Sequence[str],
        bytes_per_s: float | None = None,
        environment: dict[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self.screen)
        self.looks = True
        """False: what is written is counted, and not read."""
        self.taken = 0
        self.taken_at = 0.0
        self.bytes_per_s = bytes_per_s
        self._may_take_at = 0.0
        self._ended = False
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder or ".")
            variables = terminal_environment(COLORTERM="truecolor", **(environment or {}))
            os.execvpe(command[0], list(command), variables)
        ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))

    def take(self, timeout_s: float) -> bool:
        """Take in what was written, as far as the link lets it through; return whether there was something."""
        wait_s = max(0.0, self._may_take_at - time.monotonic())
        if self.bytes_per_s == 0 or wait_s > timeout_s:
            time.sleep(timeout_s)
            return False
        time.sleep(wait_s)
        if not select.select([self._fd], [], [], max(0.0, timeout_s - wait_s))[0]:
            return False
        try:
            chunk = os.read(self._fd, 65_536 if self.bytes_per_s is None else 512)
        except OSError:
            return False
        self.taken_at = time.monotonic()
        if self.bytes_per_s is not None:
            self._may_take_at = max(self._may_take_at, self.taken_at - 0.02) + len(chunk) / self.bytes_per_s
        self.taken += len(chunk)
        if self.looks:
            # pyte does not know the private forms of `CSI u` and `CSI p`, by which Textual asks the terminal.
            self._stream.feed(chunk.replace(b"\x1b[>25u", b"").replace(b"\x1b[<u", b""))
        return True

    def run(self, seconds: float) -> None:
        """Let it run."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.take(left)

    def wait_for(self, shown: Callable[[str], object], timeout_s: float = PATIENCE_S) -> bool:
        """Wait until the screen satisfies a condition; return False if it never does."""

        def seen() -> object:
            self.take(LOOK_S)
            return shown(self.text())

        try:
            wait_for(seen, timeout_s)
        except AssertionError:
            return False
        return True

    def text(self) -> str:
        """Return the screen."""
        return "\n".join(self.screen.display)

    def press(self, keys: str) -> None:
        """Type."""
        os.write(self._fd, keys.encode())

    def leave(self, keys: str) -> float:
        """Quit by keys and return how long that took, in seconds; one that does not end is killed: infinity."""
        if self._ended:
            return 0.0
        self._ended = True
        self.press(keys)
        began = time.monotonic()
        while time.monotonic() - began < PATIENCE_S:
            if os.waitpid(self.pid, os.WNOHANG)[0]:
                os.close(self._fd)
                return time.monotonic() - began
            self.take(0.02)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._fd)
        return float("inf")

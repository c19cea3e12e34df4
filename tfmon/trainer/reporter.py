"""The child's end of the metric pipe: writes that never keep the training waiting."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable

from tfmon.model.lane_events import FromLane
from tfmon.model.wire import encode
from tfmon.trainer.mailbox import leave


class Reporter:
    """Sends events without blocking.

    What the pipe does not take at once waits here and goes first the next time, so lines are never torn or
    out of order. A window is only sent when nothing waits: if it is not taken, the caller's next window
    covers more, and so a slow monitor costs resolution, never training time and never data.

    Thread: the loop's thread only.
    """

    def __init__(self, fd: int, end: Callable[[int], None] | None = None) -> None:
        """Write to `fd`; `end` is called with an exit code when nobody reads it any more."""
        os.set_blocking(fd, False)
        self._fd = fd
        self._leave = end or leave
        self._unsent = b""

    def send(self, event: FromLane) -> None:
        """Send an event that must arrive."""
        self._unsent += encode(event)
        self._flush()

    def offer(self, event: FromLane) -> bool:
        """Send an event if the pipe has room for it; return whether it went."""
        self._flush()
        if self._unsent:
            return False
        self._unsent = encode(event)
        self._flush()
        return True

    def drain(self, timeout_s: float) -> None:
        """Wait until everything is sent, at most so long; for the last words of a child."""
        deadline = time.monotonic() + timeout_s
        while self._unsent and (left := deadline - time.monotonic()) > 0:
            select.select([], [self._fd], [], left)
            self._flush()

    def _flush(self) -> None:
        while self._unsent:
            try:
                self._unsent = self._unsent[os.write(self._fd, self._unsent) :]
            except BlockingIOError:
                return
            except BrokenPipeError:
                self._unsent = b""
                self._leave(0)

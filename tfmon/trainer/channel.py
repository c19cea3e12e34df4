"""The child's end of the metric pipe: writes that never keep the training waiting."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Generic, NoReturn, TypeVar

from tfmon.model.lane_events import FromLane
from tfmon.model.wire import Request, Stop, WireError, decode_request, encode


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


# ---------------- the child's end of the knob pipe


GRACE_S = 1.0
"""How long the loop may take to end by itself after Stop; a trace or an import cannot be interrupted."""


class Inbox(threading.Thread):
    """Reads requests until the pipe ends, and ends the process then: a lane does not outlive its monitor."""

    def __init__(
        self,
        fd: int,
        deliver: Callable[[Request], None],
        end: Callable[[int], None] | None = None,
    ) -> None:
        """Read `fd`; `end` ends the process, with an exit code, and what the process started is its own affair."""
        super().__init__(name="tfmon-inbox", daemon=True)
        self._fd = fd
        self._deliver = deliver
        self._leave = end or leave
        self._ends_group = end is None

    def run(self) -> None:
        """Deliver every request; an unreadable line is passed over, for a newer monitor may say more."""
        rest = b""
        while chunk := os.read(self._fd, 65_536):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._handle(line)
        if self._ends_group:
            end_group()
        self._leave(0)

    def _handle(self, line: bytes) -> None:
        try:
            request = decode_request(line)
        except WireError:
            return
        self._deliver(request)
        if isinstance(request, Stop):
            patience = threading.Timer(GRACE_S, self._leave, (0,))
            patience.daemon = True
            patience.start()


# ---------------- what the loop is told while it trains: requests from the monitor, and pipelines that have become ready


Message = TypeVar("Message")


class Mailbox(Generic[Message]):
    """A queue that costs its reader one truth test a step while nothing lies in it.

    Thread: `post` from any thread; `empty`, `take` and `wait` from the loop's thread only.
    """

    def __init__(self) -> None:
        self._messages: deque[Message] = deque()
        self._posted = threading.Event()
        self.waiting = self._messages
        """True in a boolean context while something lies in the box."""

    def post(self, message: Message) -> None:
        """Put something in."""
        self._messages.append(message)
        self._posted.set()

    def take(self) -> Message | None:
        """Return the oldest message, or None when there is none."""
        self._posted.clear()
        return self._messages.popleft() if self._messages else None

    def wait(self) -> None:
        """Sleep until something lies in the box."""
        while not self._messages:
            self._posted.wait()
            self._posted.clear()


def leave(code: int) -> NoReturn:
    """End the process at once; the interpreter's own way out of a TensorFlow process takes most of a second.

    AutoGraph writes the code it makes into temporary files and leaves their removal to that way out.
    """
    for name, module in list(sys.modules.items()):
        if name.startswith("__autograph_generated_file") and module.__file__:
            with contextlib.suppress(OSError):
                Path(module.__file__).unlink()
    os._exit(code)


# ---------------- what a child does when its monitor is gone: it ends, with everything that it started


PR_SET_PDEATHSIG = 1
"""From <linux/prctl.h>."""


def die_with_parent() -> None:
    """Have the kernel end this process a second after its parent's death; only Linux does that.

    The signal is SIGHUP, number 1, and its handler the C library's `alarm`: called as a handler is, with the
    number of the signal, it has SIGALRM sent in 1 s, which ends a process that does not care for it. A second, so
    that the inbox can end the group before.
    Source: prctl(2), signal(2), alarm(2). Errors: none; without it the pipe's end is all there is.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
        libc.signal.restype = ctypes.c_void_p
        libc.signal(signal.SIGHUP, ctypes.cast(libc.alarm, ctypes.c_void_p))
        libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGHUP), 0, 0, 0)


def end_group() -> None:
    """End this process and all that it started, if it leads a group of its own, as a lane's child does."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)

"""The child's ends of its pipes, and the end of the process."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import select
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Generic, NoReturn, TypeVar

from tfmon.model.codec import CodecError, decode_request, encode_message
from tfmon.model.event_base import LaneEvent
from tfmon.model.lane_events import PROTOCOL, Hello, LaneFailed
from tfmon.model.requests import Request, Stop
from tfmon.system.lane_pipes import differences
from tfmon.system.threads import Failed, call_later, start_thread

GRACE_S = 1.0
"""Time to end after Stop, because a trace cannot be interrupted."""
PR_SET_PDEATHSIG = 1
"""Source: <linux/prctl.h>."""
Message = TypeVar("Message")


def identity(fd: int) -> tuple[int, int] | None:
    """Return which file is open. A script may close tfmon's file, and reuse the number."""
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino


class Reporter:
    """Sends events without blocking.

    Unsent data is sent first, so lines are never torn or out of order. Meanwhile, windows are refused, and the
    caller's next window is longer.

    Thread: any.
    """

    def __init__(self, fd: int, end: Callable[[int], None] | None = None) -> None:
        """`end` is called when `fd` has no reader, and ends the process by default."""
        os.set_blocking(fd, False)
        self._fd, self._file = fd, identity(fd)
        self._end = end or exit_now
        self._unsent = b""
        self._waits = False
        self.closed = False
        self.lock = threading.RLock()

    def send(self, event: LaneEvent) -> None:
        """Send an event that must arrive, unless closed."""
        if self.closed:
            return
        with self.lock:
            self._unsent += encode_message(event)
            self._flush()

    def offer(self, *events: LaneEvent, later: bool = False) -> bool:
        """Send events, `later` or if the pipe has room. Return whether they were accepted."""
        if self.closed:
            return False
        with self.lock:
            if not self._waits:
                self._flush()
                if self._unsent:
                    return False
            self._unsent += b"".join(map(encode_message, events))
            self._waits = later
            if not later:
                self._flush()
            return True

    def drain(self, timeout_s: float) -> None:
        """Wait until all data are sent, at most `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while self._unsent and (left := deadline - time.monotonic()) > 0:
            with self.lock:
                self._flush()
                if self._unsent:
                    select.select([], [self._fd], [], left)

    def hello(self, *, reports_stack: bool) -> None:
        """Send the first event of this process."""
        event = Hello(
            protocol=PROTOCOL,
            pid=os.getpid(),
            python=platform.python_version(),
            reports_stack=reports_stack,
            unlike=differences(os.environ),
        )
        self.send(event)

    def fail(self, message: str, kind: str = "error", hint: str = "") -> None:
        """Report a failure, and end the process."""
        self.send(LaneFailed(kind=kind, message=message, hint=hint))
        self.drain(timeout_s=1.0)
        self.end(1)

    def close(self) -> None:
        """Stop sending, after at most a second for unsent data."""
        with self.lock:
            if not self.closed:
                self.drain(timeout_s=1.0)
            self.closed = True

    def abandon(self) -> None:
        """Stop sending in a forked child, and replace a lock that may be held forever."""
        self.lock, self.closed = threading.RLock(), True

    def end(self, code: int = 0) -> None:
        """Stop sending, because nothing reads."""
        self.closed = True
        self._end(code)

    def _flush(self) -> None:
        self._waits = False
        if self._unsent and identity(self._fd) != self._file:
            self._unsent = b""
            self.end()
        while self._unsent:
            # The handler of a signal can raise right after the write, which must not be repeated then.
            unsent, self._unsent = self._unsent, b""
            try:
                written = os.write(self._fd, unsent)
            except BlockingIOError:
                self._unsent = unsent
                return
            except BrokenPipeError:
                self.end()
                return
            self._unsent = unsent[written:]


def start_inbox(
    fd: int,
    deliver: Callable[[Request], None],
    failed: Failed,
    end: Callable[[int], None] | None = None,
    start: Callable[[str, Callable[[], object], Failed], threading.Thread | None] = start_thread,
) -> threading.Thread | None:
    """Return the thread that delivers the requests on `fd`, and ends the process when the pipe ends.

    Unreadable lines (of a newer monitor) are skipped. `end` is called instead of ending the process group.
    """
    file = identity(fd)

    def read() -> None:
        if end is None:
            _signal_at_parents_death(signal.SIGCONT)  # A suspended process would not read the end.
        rest = b""
        while chunk := os.read(fd, 65_536) if identity(fd) == file else b"":
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                try:
                    request = decode_request(line)
                except CodecError:
                    continue
                deliver(request)
                if isinstance(request, Stop) and end is None:
                    call_later("tfmon-stop", GRACE_S, lambda: exit_now(0), failed)
        if identity(fd) != file:
            return
        if end is None:
            end_group()
        (end or exit_now)(0)

    return start("tfmon-inbox", read, failed)


class Mailbox(Generic[Message]):
    """A queue. Thread: `post` any; `take` and `wait` the loop's."""

    def __init__(self) -> None:
        self._messages: deque[Message] = deque()
        self._posted = threading.Event()
        self.waiting = self._messages

    def post(self, message: Message) -> None:
        """Add a message."""
        self._messages.append(message)
        self._posted.set()

    def take(self) -> Message | None:
        """Return the oldest message, if any."""
        self._posted.clear()
        return self._messages.popleft() if self._messages else None

    def wait(self) -> None:
        """Wait for a message."""
        while not self._messages:
            self._posted.wait()
            self._posted.clear()


def exit_now(code: int) -> NoReturn:
    """Remove AutoGraph's temporary files, and end the process at once.

    With TensorFlow, the interpreter's exit takes most of a second.
    """
    for name, module in list(sys.modules.items()):
        if name.startswith("__autograph_generated_file") and module.__file__:
            bytecode = Path(module.__cached__ or module.__file__)
            with contextlib.suppress(OSError):
                Path(module.__file__).unlink()
                bytecode.unlink()
                bytecode.parent.rmdir()
    os._exit(code)


def die_with_parent() -> None:
    """Make the kernel end this process a second after the parent's death, on Linux only.

    The signal is SIGHUP, number 1, and the handler is the C library's `alarm`. `alarm(1)` sends SIGALRM after 1 s,
    which ends even a process that holds Python's lock. Before that, the inbox can end the whole group.

    Source: prctl(2), signal(2), alarm(2).
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
        libc.signal.restype = ctypes.c_void_p
        libc.signal(signal.SIGHUP, ctypes.cast(libc.alarm, ctypes.c_void_p))
    _signal_at_parents_death(signal.SIGHUP)


def _signal_at_parents_death(number: signal.Signals) -> None:
    """Source: prctl(2), for the calling thread."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def end_group() -> None:
    """Kill this process and its children, if it leads a group."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)

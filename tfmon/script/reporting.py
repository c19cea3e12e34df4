"""What a script's lane does beside the training thread: thread-safe events, and stacks on request."""

from __future__ import annotations

import itertools
import sys
import threading
import time
import traceback
from collections.abc import Callable

from tfmon.model.lane_events import FromLane
from tfmon.model.script_events import StackReported
from tfmon.model.threads import is_ours
from tfmon.trainer.channel import Reporter

MOST_THREADS, MOST_FRAMES, MOST_LINES, MOST_CHARACTERS = 20, 100, 200, 160
"""Limits of a stack report: threads, frames of each, lines, characters of a line. It is one line on the pipe."""


class ScriptReporter:
    """Sends a lane's events from any thread, and nothing more once the monitor is gone.

    Thread: any; a thread that holds `lock` is not interrupted by the events of another.
    """

    def __init__(self, fd: int, ended: Callable[[], object]) -> None:
        """Write to `fd`; `ended` is called once nothing more can be sent."""
        self.lock = threading.RLock()
        self.closed = False
        """True when the monitor is gone, or this process is no longer the lane."""
        self._reporter, self._ended = Reporter(fd, end=self.end), ended

    def send(self, event: FromLane) -> None:
        """Send an event that must arrive."""
        if not self.closed:
            with self.lock:
                self._reporter.send(event)

    def offer(self, *events: FromLane, later: bool = False) -> bool:
        """Send events together if the pipe has room for them, or later; return whether they were sent."""
        if self.closed:
            return False
        with self.lock:
            return self._reporter.offer(*events, later=later)

    def close(self) -> None:
        """Wait until everything is sent, at most a second, and send nothing from then on."""
        with self.lock:
            if not self.closed:
                self._reporter.drain(timeout_s=1.0)
            self.closed = True

    def abandon(self) -> None:
        """Send nothing from a forked child, where a thread that does not exist may hold the lock."""
        self.lock, self.closed = threading.RLock(), True

    def end(self, _code: int = 0) -> None:
        """Send nothing from now on."""
        self.closed = True
        self._ended()


def stacks(first: int) -> StackReported:
    """Return the stacks of all threads in the format of `faulthandler`, that of the thread `first` first."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = {ident: frame for ident, frame in sys._current_frames().items() if not is_ours(frame)}
    lines: list[str] = []
    for ident in sorted(frames, key=lambda ident: ident != first)[:MOST_THREADS]:
        lines.append(f"Thread 0x{ident:016x} [{names.get(ident, 'without a name')}] (most recent call first):")
        calls = itertools.islice(traceback.walk_stack(frames[ident]), MOST_FRAMES)
        lines += [
            f'  File "{frame.f_code.co_filename}", line {at} in {frame.f_code.co_name}' for frame, at in calls
        ]
    return StackReported(
        at_ns=time.monotonic_ns(), lines=tuple(line[:MOST_CHARACTERS] for line in lines[:MOST_LINES])
    )

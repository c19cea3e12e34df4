"""Sends events from any thread, and reports stacks."""

from __future__ import annotations

import itertools
import sys
import threading
import time
import traceback
from collections.abc import Callable

from tfmon.model.lane_events import FromLane
from tfmon.model.script_events import StackReported
from tfmon.system.threads import is_ours
from tfmon.trainer.channel import Reporter

MOST_THREADS, MOST_FRAMES, MOST_LINES, MOST_CHARACTERS = 20, 100, 200, 160


class ScriptReporter(Reporter):
    """Sends events. Thread: any; `lock` excludes other threads."""

    def __init__(self, fd: int, ended: Callable[[], object]) -> None:
        super().__init__(fd, end=self.end)
        self.closed = False
        self._ended = ended

    def send(self, event: FromLane) -> None:
        """Send an event that must arrive."""
        if not self.closed:
            super().send(event)

    def offer(self, *events: FromLane, later: bool = False) -> bool:
        """Send events if the pipe has room. Return whether they were sent."""
        return not self.closed and super().offer(*events, later=later)

    def close(self) -> None:
        """Stop sending, after at most a second for unsent data."""
        with self.lock:
            if not self.closed:
                self.drain(timeout_s=1.0)
            self.closed = True

    def abandon(self) -> None:
        """Stop sending in a forked child, and replace a lock that may be held forever."""
        self.lock, self.closed = threading.RLock(), True

    def end(self, _code: int = 0) -> None:
        """Stop sending."""
        self.closed = True
        self._ended()


def stacks(first: int) -> StackReported:
    """Return the stacks of all threads, thread `first` first, in the format of `faulthandler`."""
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

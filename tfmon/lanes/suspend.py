"""Suspends the lanes along with tfmon."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from types import FrameType
from typing import Any

from tfmon.lanes.lane_process import LocalProcess, Place
from tfmon.model.fast_dataclass import dataclass
from tfmon.system.threads import Failed, call_later, start_thread


@dataclass(eq=False)
class Suspender:
    """Excludes suspended time from figures. Thread: any; `suspend_lanes` and `continue_lanes` also in handlers."""

    processes: Callable[[], Iterable[LocalProcess | Place]]
    record_suspension: Callable[[int, int, float], None]
    failed: Failed

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._since_ns: int | None = None
        self._known_until_ns = self._total_ns = 0

    def suspend_lanes(self) -> None:
        """Suspend every lane."""
        self._since_ns = time.monotonic_ns()
        for process in list(self.processes()):
            process.hold()

    def continue_lanes(self) -> None:
        """Continue the lanes."""
        since_ns, self._since_ns = self._since_ns, None
        for process in list(self.processes()):
            process.go_on()
        if since_ns is not None:
            until_ns = time.monotonic_ns()
            record = partial(self.record, since_ns, until_ns, (until_ns - since_ns) / 1e9)
            # A signal's handler must take no lock: it may have interrupted the lock's owner.
            start_thread("tfmon-suspension", record, self.failed)

    def record(self, since_ns: int, until_ns: int, lasted_s: float) -> None:
        """Record a suspension, unless it is known."""
        with self._lock:
            if since_ns < self._known_until_ns:
                return
            self._known_until_ns, self._total_ns = until_ns, self._total_ns + until_ns - since_ns
        self.record_suspension(since_ns, until_ns, lasted_s)

    def call_after(self, seconds: float, work: Callable[[], None]) -> None:
        """Call a function after some seconds without suspended time."""
        before_ns = self._total_ns

        def ring() -> None:
            more_ns = self._total_ns - before_ns
            if more_ns:
                self.call_after(more_ns / 1e9, work)
            else:
                work()

        call_later("tfmon-seconds", seconds, ring, self.failed)


def suspend_with(
    suspend: Callable[[], None], resume: Callable[[], None], take_terminal: Callable[[], None] | None = None
) -> Callable[[], None]:
    """Suspend the lanes when Ctrl+Z (SIGTSTP) stops this process; return a function that ends this.

    After a SIGSTOP Textual would take the terminal at SIGCONT and not restore it, so `take_terminal` replaces its
    handler. Thread: the main thread.
    """
    before: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGTSTP, signal.SIGCONT)}
    stopped = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True
        suspend()
        try:
            if callable(before[number]):
                before[number](number, frame)
            else:
                os.kill(os.getpid(), signal.SIGSTOP)
        finally:
            stopped = False
            resume()

    def go_on(number: int, frame: FrameType | None) -> None:
        if stopped and callable(before[number]):
            before[number](number, frame)
        elif not stopped and take_terminal is not None:
            take_terminal()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    signal.signal(signal.SIGTSTP, stop)
    signal.signal(signal.SIGCONT, go_on)
    return restore


def has_shell() -> bool:
    """Return whether a shell may continue this job with `fg`."""
    return os.getsid(0) != os.getpid()


def suspend_job() -> None:
    """Stop the whole job, also make, for which the shell waits."""
    os.killpg(os.getpgrp(), signal.SIGTSTP)

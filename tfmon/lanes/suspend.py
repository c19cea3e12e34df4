"""Times in which tfmon is stopped or the machine sleeps: the lanes stop too, and no figure holds such a time."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

from tfmon.lanes.process import LaneProcess


class Suspension:
    """Stops the children along with tfmon, and knows how long everything stood still.

    Thread: `stop_lanes` and `let_go_on` may run in a signal's handler; the rest may be called from any thread.
    """

    def __init__(
        self,
        children: Callable[[], Iterable[LaneProcess]],
        tell: Callable[[int, int, float], None],
    ) -> None:
        """Look after children; `tell` is called with the stamps of a gap and how many seconds it lasted."""
        self._children = children
        self._tell = tell
        self._lock = threading.Lock()
        self._since_ns: int | None = None
        self._known_until_ns = 0
        self._total_ns = 0

    def stop_lanes(self) -> None:
        """Stop every lane where it is: tfmon is about to be stopped itself."""
        self._since_ns = time.monotonic_ns()
        for child in list(self._children()):
            child.suspend()

    def let_go_on(self) -> None:
        """Let those lanes go on that `stop_lanes` stopped."""
        since_ns, self._since_ns = self._since_ns, None
        for child in list(self._children()):
            child.resume()
        if since_ns is not None:
            until_ns = time.monotonic_ns()
            gap = (since_ns, until_ns, (until_ns - since_ns) / 1e9)
            # What takes a lock is not done in a signal's handler: it may have interrupted the lock's owner.
            threading.Thread(target=self.note_gap, args=gap, name="tfmon-gap", daemon=True).start()

    def note_gap(self, since_ns: int, until_ns: int, lasted_s: float) -> None:
        """Note that everything stood still, unless that is known already."""
        with self._lock:
            if since_ns < self._known_until_ns:
                return
            self._known_until_ns, self._total_ns = until_ns, self._total_ns + until_ns - since_ns
        self._tell(since_ns, until_ns, lasted_s)

    def call_after(self, seconds: float, work: Callable[[], None]) -> None:
        """Do something after so many seconds in which nothing stood still, in a thread of its own."""
        before_ns = self._total_ns

        def ring() -> None:
            more_ns = self._total_ns - before_ns
            if more_ns:
                self.call_after(more_ns / 1e9, work)
            else:
                work()

        timer = threading.Timer(seconds, ring)
        timer.daemon = True
        timer.start()


# ---------------- ctrl+Z and fg: the lanes stop with tfmon and go on with it, and the time between is no part of any figure


def suspend_with(suspension: Suspension, take_terminal: Callable[[], None] | None = None) -> Callable[[], None]:
    """Stop the lanes when SIGTSTP stops this process, from now on; return how to end that.

    Whoever handled the signals before is called in between: Textual gives the terminal back and takes it again.
    It would also take it when SIGCONT follows a SIGSTOP, which it has not noticed, and then not restore it at the
    end; so `take_terminal` is called instead. By default the process stops itself.
    Thread: the main thread.
    """
    before: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGTSTP, signal.SIGCONT)}
    stopped = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True
        suspension.stop_lanes()
        try:
            if callable(before[number]):
                before[number](number, frame)
            else:
                os.kill(os.getpid(), signal.SIGSTOP)
        finally:
            stopped = False
            suspension.let_go_on()

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


def can_come_back() -> bool:
    """Return whether there is a shell that `fg` can be said to: not where tfmon itself leads the session."""
    return os.getsid(0) != os.getpid()


def suspend_job() -> None:
    """Stop the whole job, as the terminal does for Ctrl+Z: with `make run`, make too, or the shell would wait."""
    os.killpg(os.getpgrp(), signal.SIGTSTP)

"""A race without a screen: waits, tells on a terminal how it goes, and leaves the result to the caller."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

from tfmon import units
from tfmon.lanes.plan import RacePlan
from tfmon.lanes.suspend import suspend_with
from tfmon.model.session import Snapshot
from tfmon.runner.program import Program

POLL_S = 0.2
SIGNALS = tuple(
    number for name in ("SIGINT", "SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None
)


class Interruption:
    """Whether a signal has asked for the end."""

    def __init__(self) -> None:
        self.signal = ""
        """Name of the first signal that came; empty if none did."""
        self._came = threading.Event()

    def come(self, number: int, _frame: FrameType | None) -> None:
        """Take note of a signal."""
        self.signal = self.signal or signal.Signals(number).name
        self._came.set()

    def came(self) -> bool:
        """Whether a signal has come."""
        return self._came.is_set()

    @property
    def why(self) -> str:
        """What is said of the race that is broken off; empty while no signal has come."""
        return f"interrupted by {self.signal}" if self.signal else ""

    def wait(self) -> bool:
        """Wait a moment; return whether a signal has come."""
        return self._came.wait(POLL_S)


@contextlib.contextmanager
def interruption() -> Iterator[Interruption]:
    """Catch the signals that ask for the end, instead of being ended by them.

    Thread: the main thread.
    """
    interrupted = Interruption()
    before = {number: signal.signal(number, interrupted.come) for number in SIGNALS}
    try:
        yield interrupted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(program: Program, plan: RacePlan, *, quiet: bool = False) -> str:
    """Race until every lane has ended; return why it was interrupted, or "".

    Thread: the main thread, for the signals.
    """
    with interruption() as interrupted:
        forget = suspend_with(program.lanes.suspension)
        try:
            program.begin(plan)
            while not interrupted.wait() and not program.lanes.all_over:
                if not quiet:
                    _tell(program.session.snapshot())
        finally:
            why = interrupted.why
            program.close(why)
            forget()
            if not quiet:
                _tell(None)
    return why


def _tell(snapshot: Snapshot | None) -> None:
    """Write one line over the one before, where somebody can see it."""
    if not sys.stderr.isatty():
        return
    words = []
    for lane in snapshot.lanes if snapshot else ():
        speed = lane.recent().examples_per_s
        seconds = (snapshot.at_ns - lane.phase_since_ns) / 1e9 if snapshot else 0
        what = f"{units.rate(speed)} examples/s" if speed is not None else f"{lane.phase} {seconds:.0f} s"
        words.append(f"{lane.spec.name}: {what}")
    sys.stderr.write("\r\x1b[K" + "   ".join(words)[:160])
    sys.stderr.flush()

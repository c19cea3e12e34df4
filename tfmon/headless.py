"""A race without a screen: waits, tells on a terminal how it goes, and leaves the result to the caller."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType

from tfmon import units
from tfmon.lanes.plan import RacePlan
from tfmon.model.session import Snapshot
from tfmon.program import Program

POLL_S = 0.2
SIGNALS = tuple(
    number for name in ("SIGINT", "SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None
)


def run(program: Program, plan: RacePlan, *, quiet: bool = False) -> str:
    """Race until every lane has ended; return why it was interrupted, or "".

    Thread: the main thread, for the signals.
    """
    stop = threading.Event()
    caught: list[str] = []

    def interrupt(number: int, _frame: FrameType | None) -> None:
        caught.append(signal.Signals(number).name)
        stop.set()

    before = {number: signal.signal(number, interrupt) for number in SIGNALS}
    try:
        program.begin(plan)
        while not stop.wait(POLL_S) and not program.lanes.all_over:
            if not quiet:
                _tell(program.session.snapshot())
    finally:
        program.close()
        for number, handler in before.items():
            signal.signal(number, handler)
        if not quiet:
            _tell(None)
    return f"interrupted by {caught[0]}" if caught else ""


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

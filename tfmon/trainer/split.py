"""How a step's call splits into computing and all that is needed to get there, on the CPU.

There a call returns when all is done, so no clock around it tells its parts. TensorFlow's profiler does: a lane
takes a profile of a few steps of its own for each settings it trains with, once, outside of all windows.
"""

from __future__ import annotations

from pathlib import Path

from tfmon.model.knobs import KnobValue, Settings
from tfmon.model.readings import Missing

STEPS = 20
MOST_NS = 50_000_000
"""So many steps are profiled, or so many as fit into this time, but one at least."""
MOST_BYTES = 4 << 20
"""A larger trace is not read: it would take more than half a second of the lane's time."""
PIPELINE = "tf_data_"
"""Threads with such names work for the input pipeline alone: most events may be theirs, and none is the step's."""


class Splits:
    """The splits of one lane by the settings they were found under.

    Thread: the one that trains.
    """

    def __init__(self, kind: str) -> None:
        self._on_cpu = kind == "cpu"
        self._found: dict[tuple[tuple[str, KnobValue], ...], float | None] = {}

    def wanted(self, settings: Settings) -> bool:
        """Return whether a profile is needed for these settings: one was never taken, and the CPU computes."""
        return self._on_cpu and _key(settings) not in self._found

    def of(self, settings: Settings) -> float | None:
        """Return the share of a call's time in which an operation ran, 0 to 1; None where it is not known."""
        return self._found.get(_key(settings))

    def note(self, settings: Settings, trace: Path | None) -> None:
        """Take over what a profile under these settings says; None if none could be taken."""
        self._found[_key(settings)] = None if trace is None else computing_share(trace)


def computing_share(trace: Path) -> float | None:
    """Return the share of the step calls' time in which an operation of the step ran; None if the trace says none.

    TensorFlow does not record operations that take less than some 3 µs, so these are no part of it.
    """
    from tfmon.profile.breakdown import analyse
    from tfmon.profile.trace import TraceError
    from tfmon.profile.xspace import read_space

    try:
        if trace.stat().st_size > MOST_BYTES:
            return None
        call = analyse(read_space(trace, without=PIPELINE)).call
    except (TraceError, OSError):
        return None
    if isinstance(call, Missing) or isinstance(call.compute_ns, Missing) or not call.total_ns:
        return None
    return call.compute_ns / call.total_ns


def _key(settings: Settings) -> tuple[tuple[str, KnobValue], ...]:
    return tuple(sorted(settings.items()))

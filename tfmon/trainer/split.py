"""How a step's call splits into computing and all that is needed to get there, on the CPU.

There a call returns when all is done, so no clock around it tells its parts. TensorFlow's profiler does: a lane
takes a profile of a few steps of its own for each settings it trains with, once, outside of all windows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tfmon.model.knobs import KnobValue, Settings
from tfmon.model.readings import Missing

STEPS = 20
MOST_NS = 50_000_000
"""So many steps are profiled, or so many as fit into this time, but one at least."""
MOST_BYTES = 4 << 20
"""A larger trace is not read: it would take more than half a second of the lane's time."""
EVENT_BYTES = 40
"""What an event takes in a trace, about: 35 MB held 880,000 of them."""
MOST_EVENTS, LEAST_STEPS = 200_000, 4
"""A profile holds so many events at most, or so many steps at least: writing and reading it takes 2 s then."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a profile of a few steps said."""

    computing_share: float | None = None
    """Share of the calls' time in which an operation of the step ran, 0 to 1; None if the trace says none."""
    step_events: float = 0.0
    """Events that a step leaves in a trace."""


NOTHING = Found()


class Splits:
    """The splits of one lane by the settings they were found under.

    Thread: the one that trains.
    """

    def __init__(self, kind: str) -> None:
        self._on_cpu = kind == "cpu"
        self._found: dict[tuple[tuple[str, KnobValue], ...], Found] = {}

    def wanted(self, settings: Settings) -> bool:
        """Return whether a profile is needed for these settings: one was never taken, and the CPU computes."""
        return self._on_cpu and _key(settings) not in self._found

    def of(self, settings: Settings) -> float | None:
        """Return the share of a call's time in which an operation ran, 0 to 1; None where it is not known."""
        return self._found.get(_key(settings), NOTHING).computing_share

    def note(self, settings: Settings, trace: Path | None, steps: int) -> None:
        """Take over what a profile of so many steps under these settings says; None if none could be taken."""
        self._found[_key(settings)] = NOTHING if trace is None else read(trace, steps)

    def shorten(self, settings: Settings, steps: int) -> tuple[int, str]:
        """Return for how many of these steps a profile is to be taken, and why for fewer, in a user's words."""
        each = self._found.get(_key(settings), NOTHING).step_events
        fewer = max(LEAST_STEPS, int(MOST_EVENTS / each)) if each else steps
        if fewer >= steps:
            return steps, ""
        return fewer, f"Only {fewer} steps and not {steps}, for each leaves {each:,.0f} events in the trace."


def read(trace: Path, steps: int) -> Found:
    """Return what a profile of so many steps says.

    TensorFlow does not record operations that take less than some 3 µs, so these are no part of what computes.
    Whatever runs on the pipeline's own threads is none of the step's.
    """
    from tfmon.profile.breakdown import analyse
    from tfmon.profile.trace import PIPELINE, TraceError
    from tfmon.profile.xspace import read_space

    try:
        size = trace.stat().st_size
        if size > MOST_BYTES:
            return Found(step_events=size / EVENT_BYTES / steps)
        space = read_space(trace, lambda line, _event: not line.startswith(PIPELINE))
        call = analyse(space).call
    except (TraceError, OSError):
        return NOTHING
    each = space.events / steps
    if isinstance(call, Missing) or isinstance(call.compute_ns, Missing) or not call.total_ns:
        return Found(step_events=each)
    return Found(call.compute_ns / call.total_ns, each)


def _key(settings: Settings) -> tuple[tuple[str, KnobValue], ...]:
    return tuple(sorted(settings.items()))

"""Makes traces, from nothing but what a test says is in them. Times are in microseconds."""

# This folder is no package: one named `profile` would hide the standard library's, which cProfile loads.
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tfmon.profile.trace import Plane, Space, TraceEvent, TraceLine


@dataclass(frozen=True)
class Mark:
    """An event."""

    name: str
    start_us: float
    length_us: float
    stats: dict = field(default_factory=dict)


def mark(name: str, start_us: float, length_us: float, /, **stats) -> Mark:
    return Mark(name, start_us, length_us, stats)


def event(one: Mark) -> TraceEvent:
    start_ps = round(one.start_us * 1e6)
    return TraceEvent(start_ps, start_ps + round(one.length_us * 1e6), one.name, one.stats)


def plane(name: str, lines: dict[str, Iterable[Mark]]) -> Plane:
    def ordered(marks: Iterable[Mark]) -> tuple[TraceEvent, ...]:
        return tuple(sorted(map(event, marks), key=lambda one: (one[0], -one[1])))

    return Plane(name, tuple(TraceLine(title, ordered(marks)) for title, marks in lines.items()))


def space(*planes: Plane, errors: Iterable[str] = ()) -> Space:
    events = sum(len(line.events) for one in planes for line in one.lines)
    return Space(planes, 0, events, tuple(errors))

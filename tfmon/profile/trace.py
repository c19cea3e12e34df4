"""A trace: planes of lines of events.

A plane is the host or a device, a line is a thread or a queue of it, an event has a beginning and an end on its
line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from tfmon.errors import TfmonError

Stat: TypeAlias = float | int | str

STEP, CALL = "train", "step call"
"""Names of the markers that a lane puts around a step, and in it around its call; before the call it takes the
batch. These are the stretches of time that its clocks measure on every step."""


PIPELINE = "tf_data_"
"""Threads with such names work for the input pipeline alone: most of a trace may be theirs."""


class TraceError(TfmonError):
    """A file that cannot be read as a TensorFlow profile of training steps."""


class Event(NamedTuple):
    """Something that took place on a line. A tuple, because a trace may have a million of them.

    Units: picoseconds since the trace's `origin_ns`.
    """

    start_ps: int
    end_ps: int
    name: str
    stats: Mapping[str, Stat]


@dataclass(frozen=True, slots=True)
class Line:
    """A thread, or a queue of a device."""

    name: str
    events: tuple[Event, ...]
    """In the order of their beginning, outer ones first."""


@dataclass(frozen=True, slots=True)
class Plane:
    """The host or a device."""

    name: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Space:
    """A whole trace."""

    planes: tuple[Plane, ...]
    origin_ns: int
    """Time of the earliest line, as the profiler counts it: usually since it was started."""
    events: int = 0
    """How many it has, those among them that were not read."""
    troubles: tuple[str, ...] = ()
    """What the profiler itself says went wrong."""

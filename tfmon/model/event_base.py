"""The base classes of all events."""

from __future__ import annotations

import time
from dataclasses import field
from typing import Annotated, TypeAlias

from tfmon.model.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Range:
    """Inclusive limits of a number, checked by the codec."""

    low: float
    high: float


Stamp: TypeAlias = Annotated[int, Range(-(10**17), 10**17)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event of a race, by default of now. Stamps are from the monitor's `time.monotonic_ns`."""

    lane: str = ""
    """The lane of the event, which the reader of a lane's pipe sets."""
    at_ns: Stamp = field(default_factory=time.monotonic_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneEvent(Event):
    """An event that a lane's child sends."""


def kinds(base: type[Event]) -> list[type[Event]]:
    """Return the kinds of events that derive from a class. Their modules must be loaded."""
    # `slots` makes a second class, which replaces the first one of the same name.
    derived: dict[str, type[Event]] = {kind.__name__: kind for kind in base.__subclasses__()}
    return [leaf for direct in derived.values() for leaf in kinds(direct)] or [base]

"""The base class of all events of a lane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from tfmon.model.readings import Range

Stamp: TypeAlias = Annotated[int, Range(-(10**17), 10**17)]
"""From `time.monotonic_ns`; negative if another machine's clock is behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneEvent:
    """Fields of all events of a lane. The reader sets `lane`."""

    lane: str = ""
    at_ns: Stamp

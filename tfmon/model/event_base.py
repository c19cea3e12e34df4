"""The base class of all events of a lane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from tfmon.model.readings import Range

Stamp: TypeAlias = Annotated[int, Range(-(10**17), 10**17)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneEvent:
    """An event of a lane. The reader sets `lane`."""

    lane: str = ""
    at_ns: Stamp

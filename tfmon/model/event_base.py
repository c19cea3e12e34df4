"""The base class of all events of a lane.

The child does not know its lane's name, so the reader sets `lane`. Stamps (`at_ns`) come from
`time.monotonic_ns`, which all processes of one machine share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from tfmon.model.readings import Range

Stamp: TypeAlias = Annotated[int, Range(-(10**17), 10**17)]
"""A stamp; it can be before the start of this machine, if another machine's clock is behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneEvent:
    """Fields of all events of a lane."""

    lane: str = ""
    at_ns: Stamp

"""What all events of a lane have: which lane's it is, and when it was.

The child does not know its lane's name, so the reader fills in `lane`. Stamps (`at_ns`) are those of
`time.monotonic_ns`, which all processes of one machine share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from tfmon.model.readings import Range

Stamp: TypeAlias = Annotated[int, Range(-(10**17), 10**17)]
"""A stamp; one of a machine whose clock is behind may lie before this machine was started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneEvent:
    """What all events of a lane have."""

    lane: str = ""
    at_ns: Stamp

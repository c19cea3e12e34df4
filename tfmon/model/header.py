"""The first and the last line of a recording."""

from __future__ import annotations

from dataclasses import field
from datetime import datetime

from tfmon.model.fast_dataclass import dataclass
from tfmon.model.folder_views import View
from tfmon.model.knobs import KnobValue
from tfmon.model.race import BetweenProcesses, Machine
from tfmon.model.spec import LaneSpec

SCHEMA = 10
"""The only readable version. New events and fields with a default need no new version."""
JSON_SCHEMA = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The facts about the recorded race."""

    schema: int
    tfmon: str
    python: str
    tensorflow: str | None
    started: str
    """ISO 8601 with offset."""
    started_ns: int
    scenario: str
    title: str
    source: str
    mode: str
    lanes: tuple[LaneSpec, ...]
    knobs: dict[str, KnobValue]
    machine: Machine
    environment: dict[str, str] = field(default_factory=dict)
    hosts: dict[str, Machine] = field(default_factory=dict)
    between: BetweenProcesses | None = None
    views: dict[str, View] = field(default_factory=dict)

    @property
    def lane_names(self) -> dict[str, str]:
        """Lane names on the time line."""
        return {
            lane.name: lane.id if lane.id and (lane.apart or lane.number) else lane.name for lane in self.lanes
        }

    def wall_s(self, at_ns: int) -> float:
        """Return the seconds since the epoch for a stamp."""
        return datetime.fromisoformat(self.started).timestamp() + (at_ns - self.started_ns) / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """How a race ended, for lists."""

    at_ns: int
    events: int
    seconds: float | None
    """From the start signal."""
    verdict: str
    ratio: float | None
    tensorflow: str | None
    lanes: tuple[str, ...] = ()
    """Titles; older recordings have none."""
    failure: str = ""

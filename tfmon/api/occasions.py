"""The events that are worth a notice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from tfmon.analysis.analysis import analyse
from tfmon.analysis.concern_ids import FAIL_ON
from tfmon.analysis.health import concerns
from tfmon.errors import UsageError
from tfmon.model.lane_state import ABSENT, FAILED
from tfmon.model.readings import ALWAYS_VALID
from tfmon.model.session import Snapshot

if TYPE_CHECKING:
    from tfmon.analysis.result import RaceResult
    from tfmon.model.header import Header

COMPARED_EVERY_S = 10.0
Happening: TypeAlias = tuple[str, str, str, str]
"""Kind, identity, title, text."""


def happening(snapshot: Snapshot) -> Iterator[Happening]:
    """Yield each present event."""
    names = {concern: name for name, concern in FAIL_ON.items()}
    for lane in snapshot.lanes:
        if lane.phase in (FAILED, ABSENT):
            why = lane.trouble.message if lane.trouble is not None else f"the lane is {lane.phase}"
            yield "failed", f"{lane.spec.name} {lane.phase_since_ns}", lane.title, why
        for concern in () if lane.over else concerns(snapshot, lane):
            if concern.is_fault:
                yield names[concern.id], lane.spec.name, lane.title, concern.text
    for gpu in (gpu for host in snapshot.hosts.values() for gpu in host.gpus):
        for fault in gpu.faults:
            yield "gpu", f"{gpu.key} {fault.at_ns}", "", f"{gpu.name}: {fault.text}"
    if snapshot.lanes and all(lane.over for lane in snapshot.lanes):
        outcome = analyse(snapshot).outcome
        yield "ended", str(snapshot.race.number), "", f"{snapshot.race.scenario} ended: {outcome}"


class Baseline:
    """A race for comparison. Thread: one."""

    def __init__(self, race: RaceResult, limit: float, header: Callable[[], Header | None]) -> None:
        self._race, self._limit, self._header = race, limit, header
        self._slower: list[Happening] = []
        self._due_s = 0.0

    def regressions(self, snapshot: Snapshot, at_the_end: bool) -> Sequence[Happening]:
        """Return the slower lanes."""
        from tfmon.analysis.compare import compare  # late: few races need it
        from tfmon.analysis.gate import SLOWER, judge
        from tfmon.analysis.summarise import summarise

        header = self._header()
        if header is None or not (at_the_end or time.monotonic() >= self._due_s):
            return self._slower
        self._due_s = time.monotonic() + COMPARED_EVERY_S
        now = summarise(analyse(snapshot), header)
        try:
            lanes = judge([compare(self._race, now)], self._limit, kind=ALWAYS_VALID).lanes
        except UsageError:  # another scenario was chosen on the screen
            lanes = ()
        self._slower = [("regression", lane.lane, lane.lane, lane.reason) for lane in lanes if lane.kind == SLOWER]
        return self._slower

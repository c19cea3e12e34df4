"""New processes of all lanes, whose slices are combined into one interval.

Equal processes differ in speed by their memory layout; more rounds do not average this. Forked processes
would share a layout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tfmon.analysis.statistics import compare, pairs_of
from tfmon.model.lane_events import RACING, SliceEnded
from tfmon.model.race import TURNS
from tfmon.model.session import Session, Snapshot

LEAST_S = 20.0
"""A start takes some seconds without measurement."""
LEAST_ROUNDS = 5
"""Fewer give no information about the processes."""
LEAST_LEFT_S = 10.0
MATTERS = 0.5
"""Share of between-process in other variance: below, it adds less than 12 % to the interval."""


class Repeat:
    """Starts the lanes of a race again. Thread: any."""

    def __init__(self, session: Session, start_again: Callable[[Sequence[str]], None]) -> None:
        """`start_again` replaces the lanes' processes."""
        self._session = session
        self._start_again = start_again
        self._ended: dict[str, int] = {}
        session.listen(self._hear, SliceEnded)

    def _hear(self, event: SliceEnded) -> None:
        self._ended[event.lane] = event.round
        snapshot = self._session.snapshot()
        lanes = [lane.spec.name for lane in snapshot.lanes if lane.phase == RACING]
        if all(self._ended.get(name) == event.round for name in lanes) and due(snapshot):
            self._start_again(lanes)


def due(snapshot: Snapshot) -> bool:
    """Return whether new processes narrow the interval more than rounds."""
    race, lanes = snapshot.race, [lane for lane in snapshot.lanes if lane.phase == RACING]
    if not race.fresh or race.mode != TURNS or race.exclusive or len(lanes) < 2:
        return False
    if any(lane.changes.requested or lane.heartbeat.stalled_since_ns is not None for lane in lanes):
        return False
    if race.seconds is not None and race.started_ns is not None:
        left_s = race.seconds - (snapshot.at_ns - race.started_ns) / 1e9
        if left_s < LEAST_LEFT_S:
            return False
    present = [[part for part in lane.slices if part.process == lane.process.number] for lane in lanes]
    if min(map(len, present)) < LEAST_ROUNDS:
        return False
    if (present[0][-1].at_ns - present[0][0].at_ns) / 1e9 < LEAST_S:
        return False
    base, *more = lanes
    for lane in more:
        two_machines = snapshot.machine_key(lane) != snapshot.machine_key(base)
        result = compare(pairs_of(lane.slices, base.slices), race.between, two_machines=two_machines)
        if result is not None and result.between.reach() >= MATTERS * result.center.reach():
            return True
    return False

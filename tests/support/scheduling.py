"""A race of which the scheduler decides: processes that only write down what they are told."""

from __future__ import annotations

import pytest

from tfmon.lanes.scheduler import Scheduler
from tfmon.model.race import TURNS
from tfmon.model.requests import Pause, Run, RunSlice


class FakeRace:
    """Writes requests down, and keeps what they make of the lanes."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.seconds: list[float] = []
        self.suspended: set[str] = set()
        self.starts = 0
        self.quiet = False
        self.spare_loads = 0
        self.renewals = 0
        self.slice_of = ""
        self.said_paused: list[str] = []
        self.now_s = 100.0
        self.computing = True
        self.patience = 3.0

    def computes(self, lane) -> bool:
        return self.computing

    def patience_s(self, lane) -> float:
        return self.patience

    def send(self, lane, request):
        assert lane not in self.suspended, "a suspended lane would not read this"
        match request:
            case RunSlice():
                self.seconds.append(request.seconds)
                self.log.append(f"{lane}{request.round}")
            case Run():
                self.log.append(f"run {lane}")
            case Pause():
                self.log.append(f"pause {lane}")

    def suspend(self, lane):
        self.suspended.add(lane)

    def continue_(self, lane):
        self.suspended.discard(lane)

    def started(self):
        self.starts += 1

    def granted(self, lane, beside=()):
        self.slice_of = lane
        self.beside = "".join(beside)

    def paused(self, lane):
        self.said_paused.append(lane)

    def set_quiet(self, quiet):
        self.quiet = quiet

    def renew(self, lanes) -> bool:
        if self.renewals:
            self.renewals -= 1
            self.log.append("renew " + "".join(lanes))
            return True
        return False

    def load_spare(self, done) -> bool:
        if self.spare_loads:
            self.spare_loads -= 1
            self.log.append("load")
            return True
        return False

    def taken(self) -> str:
        """Return the requests sent since the last call."""
        log, self.log = self.log, []
        return ", ".join(log)


@pytest.fixture
def race():
    return FakeRace()


@pytest.fixture
def begin(race):
    """Start a race of which some lanes are ready, all if not said; the first requests are taken."""

    def start(lanes: str = "AB", mode: str = TURNS, ready: str | None = None, machines=None) -> Scheduler:
        scheduler = Scheduler(race, race, lambda: round(race.now_s * 1e9))
        scheduler.begin(lanes, mode, 0.5, machines)
        for lane in lanes if ready is None else ready:
            scheduler.ready(lane)
        race.taken()
        return scheduler

    return start

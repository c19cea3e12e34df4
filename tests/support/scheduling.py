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
        self.slice_of = self.beside = ""
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
    """Start a race, with a space between lanes of two machines; all are ready if not said."""

    def start(lanes: str = "AB", mode: str = TURNS, ready: str | None = None) -> Scheduler:
        machines = {lane: number for number, some in enumerate(lanes.split()) for lane in some}
        scheduler = Scheduler(race, race, lambda: round(race.now_s * 1e9))
        scheduler.begin("".join(machines), mode, 0.5, machines if " " in lanes else None)
        for lane in machines if ready is None else ready:
            scheduler.ready(lane)
        race.taken()
        return scheduler

    return start


def after(race: FakeRace, scheduler: Scheduler, seconds: float) -> None:
    """Let time pass, and have the scheduler look twice a second."""
    for _ in range(round(2 * seconds)):
        race.now_s += 0.5
        scheduler.check()


def play(race: FakeRace, scheduler: Scheduler, script: str) -> None:
    """Play a script of lines such as `pause A, idle A -> B1; slice B; suspended A`, and check what each expects.

    Before the arrow: methods of the scheduler with their arguments, `-` for none; `after SECONDS`; or an attribute
    of the race with its value. Behind it: the requests that are sent, `*` for any; then what is known of the race.
    """
    for line in filter(None, map(str.strip, script.splitlines())):
        actions, _, expected = line.partition("->")
        answer: object = None
        for name, *arguments in (action.split() for action in actions.split(",") if action.strip()):
            values = [float(one) if one[0].isdigit() else one.strip("-") for one in arguments]
            if name == "after":
                after(race, scheduler, float(arguments[0]))
            elif hasattr(scheduler, name):
                answer = getattr(scheduler, name)(*values)
            else:
                setattr(race, name, values[0])
        requests, *facts = (part.strip() for part in expected.split(";"))
        assert requests in ("*", taken := race.taken()), f"{line}: {taken}"
        known = {
            "slice": race.slice_of,
            "beside": race.beside,
            "suspended": "".join(sorted(race.suspended)),
            "paused": "".join(race.said_paused),
            "starts": race.starts,
            "quiet": race.quiet,
            "renewals": race.renewals,
            "answer": answer,
        }
        for name, value in (fact.split() for fact in facts):
            assert str(known[name]) == value.strip("-"), f"{line}: {name} {known[name]}"

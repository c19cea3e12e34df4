"""A race for the scheduler: its processes only log their requests."""

import pytest

from tfmon.lanes.scheduler import Scheduler
from tfmon.model.lane_state import PAUSED
from tfmon.model.race import TURNS
from tfmon.model.requests import Pause, Run, RunSlice


class FakeRace:
    """Stand-in for the session and the processes of a race, which logs the calls of the scheduler."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.seconds: list[float] = []
        self.suspended: set[str] = set()
        self.starts = 0
        self.slice_of = self.beside = ""
        self.said_paused: list[str] = []
        self.now_s = 100.0

    def scheduler(self, lanes, mode=TURNS, machines=None) -> Scheduler:
        """Return a scheduler whose race has begun."""
        processes = {lane: FakeProcess(self, lane) for lane in "ABCD"}
        scheduler = Scheduler(self, processes, self.started, lambda: round(self.now_s * 1e9))
        scheduler.begin(lanes, mode, 0.5, machines)
        return scheduler

    def started(self):
        self.starts += 1

    def grant_slice(self, lane, beside=()):
        self.slice_of = lane
        self.beside = "".join(beside)

    def accept(self, event):
        assert event.phase == PAUSED
        self.said_paused.append(event.lane)

    def taken(self) -> str:
        """Return the requests sent since the last call."""
        log, self.log = self.log, []
        return ", ".join(log)


class FakeProcess:
    """A process that adds its requests to the log of the race."""

    def __init__(self, race: FakeRace, lane: str) -> None:
        self.race, self.lane = race, lane

    def send(self, request):
        race, lane = self.race, self.lane
        assert lane not in race.suspended, "a suspended lane would not read this"
        match request:
            case RunSlice():
                race.seconds.append(request.seconds)
                race.log.append(f"{lane}{request.round}")
            case Run():
                race.log.append(f"run {lane}")
            case Pause():
                race.log.append(f"pause {lane}")

    def suspend(self):
        self.race.suspended.add(self.lane)

    def continue_(self):
        self.race.suspended.discard(self.lane)


@pytest.fixture
def race():
    return FakeRace()


@pytest.fixture
def begin(race):
    """Start a race, with a space between lanes of two machines. All lanes are ready by default."""

    def start(lanes: str = "AB", mode: str = TURNS, ready: str | None = None) -> Scheduler:
        machines = {lane: number for number, some in enumerate(lanes.split()) for lane in some}
        scheduler = race.scheduler("".join(machines), mode, machines if " " in lanes else None)
        for lane in machines if ready is None else ready:
            scheduler.ready(lane)
        race.taken()
        return scheduler

    return start


def play(race: FakeRace, scheduler: Scheduler, script: str) -> None:
    """Play a script of lines such as `pause A, idle A -> B1; slice B; suspended A`, and check what each expects.

    Before the arrow: methods of the scheduler with their arguments, `-` for none. Behind it: the requests that are
    sent, `*` for any; then attributes of the race.
    """
    for line in filter(None, map(str.strip, script.splitlines())):
        actions, _, expected = line.partition("->")
        answer: object = None
        for name, *arguments in (action.split() for action in actions.split(",") if action.strip()):
            values = [float(argument) if argument[0].isdigit() else argument.strip("-") for argument in arguments]
            answer = getattr(scheduler, name)(*values)
        requests, *facts = (part.strip() for part in expected.split(";"))
        assert requests in ("*", taken := race.taken()), f"{line}: {taken}"
        known = {
            "slice": race.slice_of,
            "beside": race.beside,
            "suspended": "".join(sorted(race.suspended)),
            "paused": "".join(race.said_paused),
            "starts": race.starts,
            "answer": answer,
        }
        for name, value in (fact.split() for fact in facts):
            assert str(known[name]) == value.strip("-"), f"{line}: {name} {known[name]}"

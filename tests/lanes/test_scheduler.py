"""Who trains when: scripts of events in a race, with the expected requests of the scheduler."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfmon.lanes.scheduler import HUNG_EVERY, SHARE, Scheduler
from tfmon.model.lane_events import PAUSED
from tfmon.model.race import CONCURRENT, TURNS
from tfmon.model.requests import Pause, Run, RunSlice

SCRIPTS = """
ABC ready -: the signal comes with the last lane, and the first that was ready begins
    ready C, ready A -> ; starts 0
    ready B -> C1; starts 1

ABC at once ready -: at once all begin
    ready C, ready A -> ; starts 0
    ready B -> run C, run A, run B; starts 1

AB ready -: a lane that fails last does not block
    ready A, ended B -> A1; starts 1

AB ready -: lanes that are paused before the signal start when they may
    pause AB, ready A, ready B -> ; starts 0
    resume B -> B1; starts 1

ABC: all but the lane that trains are suspended
    idle A -> B1; slice B; suspended AC
    idle B -> C1; slice C; suspended AB
    idle C -> C2; slice C; suspended AB
    idle C -> B2; slice B; suspended AC
    idle B -> A2; slice A; suspended BC

A ready -: a lane alone trains without turns
    ready A -> run A; suspended -; slice -
    set_mode concurrent -> ; suspended -
    set_mode turns -> ; suspended -

AB: a lane that is over in its turn passes it on, and the last one to nobody
    ended A -> B1; slice B
    ended B -> ; slice -

AB: no slice is granted while a lane gets ready
    restarting B -> ; slice A
    idle A -> ; slice -; suspended AB
    ready B -> B1; slice B

AB: a lane that was over comes back
    ended B, restarting B, idle A ->
    ready B -> B1

AB: in turns a paused lane is skipped
    pause B -> ; suspended B; slice A; paused B
    idle A -> A2

AB: a lane that is paused in its turn passes it on when it stands
    pause A -> pause A; slice A
    idle A -> B1; slice B; suspended A; paused A

AB: with all paused no slice is granted until one may run
    pause AB, idle A -> pause A; slice -; suspended AB
    resume AB -> B2; suspended A

AB at once: at once only the paused lane stands
    pause A, idle A -> pause A; suspended -
    resume A -> run A

ABC: from turns to at once all run when the slice is over
    set_mode concurrent -> run B, run C; suspended -; slice -
    idle A -> run A; suspended -

AB at once: a lane that stood already is suspended when turns begin
    pause B, idle B -> pause B
    set_mode turns -> pause A; suspended B
    idle A -> A1; suspended B

AB: rounds are not counted from the beginning again
    set_mode concurrent, idle A, set_mode turns -> *
    idle A, idle B -> B2

AB: in turns it gets every slice when the other has ended its own
    set_exclusive B -> ; slice A
    idle A, idle B -> B1, B2; suspended A; slice B

AB at once: afterwards all go on as the mode says
    set_exclusive A, idle B, idle A -> *
    set_exclusive - -> run B; slice -
    idle A -> run A; suspended -

AB+C: lanes of one machine take turns, and those of others train meanwhile
    -> ; slice C; beside A
    idle A -> B1; slice B; beside C
    idle B -> ; slice -; beside C
    idle C -> C2, B2
    idle B -> A2

AB+C: a lane that has the race for itself trains alone on all machines
    set_exclusive C 2.0, idle A, idle C -> C2; slice C; beside -
    set_exclusive -, idle C -> A3, C3

A: without others one that hangs is waited for
    skip A -> ; suspended -
    responded A -> ; answer True

ABC ready BC: the others begin without one that hangs before it is ready
    -> ; starts 0
    skip A -> B1; starts 1; suspended C

AB ready B: one that goes on getting ready has the machine for itself again
    skip A -> B1; slice B
    responded A -> ; answer True
    idle B -> ; slice -
    ready A -> B2; slice B

AB: it is ended and in the race again
    skip A, ended A -> *
    ready A, idle B, idle B -> B2, A2
"""


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


def cases() -> list:
    """Return lanes, mode, the lanes that are ready, and script of each case; `AB+C` are lanes of two machines."""
    found = []
    for case in SCRIPTS.strip().split("\n\n"):
        head, _, script = case.partition("\n")
        race, _, says = head.partition(": ")
        lanes, _, ready = race.partition(" ready ")
        mode = CONCURRENT if lanes.endswith(" at once") else TURNS
        lanes = lanes.removesuffix(" at once").replace("+", " ")
        found.append(pytest.param(lanes, mode, ready.strip("-") if ready else None, script, id=says))
    return found


@pytest.mark.parametrize(("lanes", "mode", "ready", "script"), cases())
def test_the_scheduler_follows_the_script(race, begin, lanes, mode, ready, script):
    play(race, begin(lanes, mode, ready), script)


def test_slices_of_an_exclusive_lane_may_be_of_another_length_and_the_next_race_has_a_signal_again(race, begin):
    scheduler = begin()
    scheduler.idle("A")
    race.seconds.clear()
    scheduler.set_exclusive("A", 0.25)
    scheduler.idle("B")
    scheduler.set_exclusive("")
    scheduler.idle("A")
    assert race.seconds == [0.25, 0.5]
    scheduler.begin("C", TURNS, 0.5)
    scheduler.ready("C")
    assert race.starts == 2


@given(st.lists(st.tuples(st.sampled_from("ABCD"), st.booleans()), max_size=60))
def test_no_machine_has_two_slices_at_once_and_rounds_are_whole(events):
    """Lanes end their slices in any order, and may be paused in between."""
    machines = {"A": "x", "B": "x", "C": "y", "D": "z"}
    race = FakeRace()
    scheduler = race.scheduler("ABCD", machines=machines)
    for lane in "ABCD":
        scheduler.ready(lane)
    running: dict[str, int] = {}
    seen: list[tuple[int, str]] = []

    def take() -> None:
        for word in filter(None, race.taken().split(", ")):
            lane, number = word[0], int(word[1:])
            assert machines[lane] not in {machines[one] for one in running}, "two lanes train on one machine"
            assert all(number == one for one in running.values()), "two rounds at once"
            assert (number, lane) not in seen
            running[lane] = number
            seen.append((number, lane))

    take()
    paused: set[str] = set()
    for lane, pause in events:
        if lane in running:
            del running[lane]
            scheduler.idle(lane)
        elif pause and lane not in paused:
            paused.add(lane)
            scheduler.pause(lane)
        elif lane in paused:
            paused.discard(lane)
            scheduler.resume(lane)
        take()
        assert running or paused == set("ABCD")
    assert [number for number, _ in seen] == sorted(number for number, _ in seen)


def others_train(race, scheduler, lanes: str = "B") -> None:
    for number in range(HUNG_EVERY * len(lanes)):
        assert race.slice_of in lanes, f"the others go on at full speed, {number} slices"
        scheduler.idle(race.slice_of)
        if race.slice_of not in lanes:
            return
    raise AssertionError("never continued")


def test_the_others_go_on_and_now_and_then_it_is_continued_and_sent_nothing_more(race, begin):
    scheduler = begin()
    scheduler.skip("A")
    assert (race.suspended, race.slice_of) == ({"A"}, "B")
    assert not scheduler.responded("A"), "it said so before it was suspended"
    others_train(race, scheduler)
    assert race.taken().startswith("B1, B2, B3, B4, ")
    assert (race.slice_of, race.suspended) == ("A", {"B"})
    scheduler.skip("A")
    assert (race.slice_of, race.suspended, race.taken()) == ("B", {"A"}, f"B{HUNG_EVERY + 1}")
    others_train(race, scheduler)
    assert scheduler.responded("A")
    scheduler.idle("A")
    race.taken()
    scheduler.idle("B")
    assert race.slice_of == "A", "it is in the race again"


def test_one_that_is_paused_while_it_hangs_is_not_said_to_be_paused_and_comes_back(race, begin):
    scheduler = begin()
    scheduler.skip("A")
    scheduler.pause("A")
    assert race.said_paused == []
    scheduler.idle("B")
    assert race.slice_of == "B"
    scheduler.resume("A")
    others_train(race, scheduler)
    assert race.slice_of == "A"


def test_the_slice_beside_a_long_one_is_longer_and_beside_short_ones_as_set(race, begin):
    scheduler = begin()
    race.now_s += 30
    scheduler.idle("A")
    race.now_s += 0.5
    scheduler.idle("B")
    race.now_s += 0.5
    scheduler.idle("B")
    assert race.seconds == [0.5, 30 * SHARE, 30 * SHARE, 0.5]

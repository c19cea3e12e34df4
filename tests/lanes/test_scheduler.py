"""Who trains when, with processes that only write down what they are told."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfmon.lanes.scheduler import FIRST_ROUNDS, RoundOrder, Scheduler
from tfmon.model.race import CONCURRENT, TURNS
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

    def start(lanes: str = "AB", mode: str = TURNS, ready: str | None = None) -> Scheduler:
        scheduler = Scheduler(race, race)
        scheduler.begin(lanes, mode, 0.5)
        for lane in lanes if ready is None else ready:
            scheduler.ready(lane)
        race.taken()
        return scheduler

    return start


class TestStart:
    @pytest.mark.parametrize(("mode", "first"), [(TURNS, "A1"), (CONCURRENT, "run A, run B, run C")])
    def test_the_signal_comes_when_the_last_lane_is_ready(self, race, begin, mode, first):
        scheduler = begin("ABC", mode, ready="")
        scheduler.ready("C")
        scheduler.ready("A")
        assert (race.taken(), race.starts) == ("", 0)
        scheduler.ready("B")
        assert (race.taken(), race.starts) == (first, 1)

    @pytest.mark.parametrize(("mode", "first"), [(TURNS, "A1"), (CONCURRENT, "run A")])
    @pytest.mark.parametrize("fails_first", [True, False])
    def test_a_lane_that_fails_does_not_block_the_others(self, race, begin, mode, first, fails_first):
        scheduler = begin("AB", mode, ready="")
        for step in (scheduler.ended, scheduler.ready)[:: 1 if fails_first else -1]:
            step("B" if step == scheduler.ended else "A")
        assert (race.taken(), race.starts) == (first, 1)

    def test_lanes_that_wait_for_the_signal_are_suspended_in_turns_only(self, race, begin):
        begin("AB", CONCURRENT, ready="").ready("A")
        assert race.suspended == set()
        begin("AB", TURNS, ready="").ready("A")
        assert race.suspended == {"A"}

    def test_lanes_paused_before_the_signal_start_when_they_may(self, race, begin):
        scheduler = begin(ready="")
        scheduler.pause("AB")
        scheduler.ready("A")
        scheduler.ready("B")
        assert (race.taken(), race.starts) == ("", 0)
        scheduler.resume("B")
        assert (race.taken(), race.starts) == ("B1", 1)

    def test_the_signal_is_given_once_in_a_race_and_again_in_the_next(self, race, begin):
        scheduler = begin()
        scheduler.restarting("A")
        scheduler.ready("A")
        assert race.starts == 1
        scheduler.begin("C", TURNS, 0.5)
        scheduler.ready("C")
        assert race.starts == 2


class TestTurns:
    def test_turns_alternate_a_b_b_a(self, race, begin):
        scheduler = begin()
        for lane in "ABBAABB":
            assert race.slice_of == lane
            scheduler.idle(lane)
        assert race.taken() == "B1, B2, A2, A3, B3, B4, A4"

    def test_all_but_the_lane_that_trains_are_suspended(self, race, begin):
        scheduler = begin("ABC")
        for lane in "ABCCBA":
            assert race.slice_of == lane
            assert race.suspended == set("ABC") - {lane}
            scheduler.idle(lane)

    def test_a_lane_alone_trains_without_turns(self, race, begin):
        scheduler = begin("A", ready="")
        scheduler.ready("A")
        assert (race.taken(), race.suspended, race.slice_of) == ("run A", set(), "")
        for mode in (CONCURRENT, TURNS):
            scheduler.set_mode(mode)
            assert (race.taken(), race.suspended) == ("", set())

    def test_a_lane_that_is_over_in_its_turn_passes_it_on_and_the_last_one_to_nobody(self, race, begin):
        scheduler = begin()
        scheduler.ended("A")
        assert (race.taken(), race.slice_of) == ("B1", "B")
        scheduler.ended("B")
        assert (race.taken(), race.slice_of) == ("", "")


class TestRestart:
    def test_no_slice_is_granted_while_a_lane_gets_ready(self, race, begin):
        scheduler = begin()
        scheduler.restarting("B")
        assert race.slice_of == "A"
        scheduler.idle("A")
        assert (race.taken(), race.slice_of, race.suspended) == ("", "", {"A", "B"})
        scheduler.ready("B")
        assert (race.taken(), race.slice_of) == ("B1", "B")

    def test_a_lane_that_was_over_comes_back(self, race, begin):
        scheduler = begin()
        scheduler.ended("B")
        scheduler.restarting("B")
        scheduler.idle("A")
        assert race.taken() == ""
        scheduler.ready("B")
        assert race.taken() == "B1"

    def test_a_restart_that_fails_lets_the_others_go_on(self, race, begin):
        scheduler = begin()
        scheduler.restarting("A")
        scheduler.ended("A")
        assert race.taken() == "B1"

    def test_at_once_the_others_train_on_and_the_new_one_joins(self, race, begin):
        scheduler = begin(mode=CONCURRENT)
        scheduler.restarting("A")
        assert race.taken() == ""
        scheduler.ready("A")
        assert race.taken() == "run A"


class TestPause:
    def test_in_turns_a_paused_lane_is_skipped(self, race, begin):
        scheduler = begin()
        scheduler.pause("B")
        assert (race.taken(), race.suspended, race.slice_of) == ("", {"B"}, "A")
        assert race.said_paused == ["B"]
        scheduler.idle("A")
        assert race.taken() == "A2"

    def test_a_lane_paused_in_its_turn_passes_it_on_when_it_stands(self, race, begin):
        scheduler = begin()
        scheduler.pause("A")
        assert (race.taken(), race.slice_of) == ("pause A", "A")
        scheduler.idle("A")
        assert (race.taken(), race.slice_of, race.suspended) == ("B1", "B", {"A"})
        assert race.said_paused == ["A"]

    def test_all_paused_no_slice_is_granted_until_one_may_run(self, race, begin):
        scheduler = begin()
        scheduler.pause("AB")
        scheduler.idle("A")
        assert (race.taken(), race.slice_of, race.suspended) == ("pause A", "", {"A", "B"})
        scheduler.resume("AB")
        assert (race.taken(), race.suspended) == ("B2", {"A"})

    def test_at_once_only_the_paused_lane_stands(self, race, begin):
        scheduler = begin(mode=CONCURRENT)
        scheduler.pause("A")
        scheduler.idle("A")
        assert (race.taken(), race.suspended) == ("pause A", set())
        scheduler.resume("A")
        assert race.taken() == "run A"

    def test_a_lane_that_may_run_before_it_stopped_runs_on(self, race, begin):
        scheduler = begin(mode=CONCURRENT)
        scheduler.pause("A")
        scheduler.resume("A")
        assert race.taken() == "pause A"
        scheduler.idle("A")
        assert race.taken() == "run A"

    def test_a_lane_that_is_over_or_not_ready_is_told_nothing(self, race, begin):
        scheduler = begin("ABC")
        scheduler.ended("C")
        scheduler.restarting("B")
        scheduler.pause("BC")
        assert race.taken() == ""


class TestMode:
    def test_from_turns_to_at_once_all_run_when_the_slice_is_over(self, race, begin):
        scheduler = begin("ABC")
        scheduler.set_mode(CONCURRENT)
        assert (race.taken(), race.suspended, race.slice_of) == ("run B, run C", set(), "")
        scheduler.idle("A")
        assert (race.taken(), race.suspended) == ("run A", set())

    def test_from_at_once_to_turns_all_stand_still_before_the_first_turn(self, race, begin):
        scheduler = begin(mode=CONCURRENT)
        scheduler.set_mode(TURNS)
        assert race.taken() == "pause A, pause B"
        scheduler.idle("B")
        assert (race.taken(), race.suspended) == ("", {"B"})
        scheduler.idle("A")
        assert (race.taken(), race.suspended, race.slice_of) == ("A1", {"B"}, "A")

    def test_a_lane_that_stood_already_is_suspended_when_turns_begin(self, race, begin):
        scheduler = begin(mode=CONCURRENT)
        scheduler.pause("B")
        scheduler.idle("B")
        race.taken()
        scheduler.set_mode(TURNS)
        assert (race.taken(), race.suspended) == ("pause A", {"B"})
        scheduler.idle("A")
        assert (race.taken(), race.suspended) == ("A1", {"B"})

    def test_rounds_are_not_counted_anew(self, race, begin):
        scheduler = begin()
        scheduler.set_mode(CONCURRENT)
        scheduler.idle("A")
        scheduler.set_mode(TURNS)
        race.taken()
        scheduler.idle("A")
        scheduler.idle("B")
        assert race.taken() == "B2"

    def test_a_mode_chosen_before_the_signal_counts(self, race, begin):
        scheduler = begin(ready="")
        scheduler.ready("A")
        scheduler.set_mode(CONCURRENT)
        assert race.taken() == ""
        scheduler.ready("B")
        assert (race.taken(), race.suspended) == ("run A, run B", set())


class TestFreshProcesses:
    def test_they_come_between_two_rounds_and_the_race_goes_on_when_all_are_ready(self, race, begin):
        scheduler = begin("AB")
        race.renewals = 1
        scheduler.idle("A")
        assert race.taken() == "B1", "not within a round"
        scheduler.idle("B")
        assert (race.taken(), race.slice_of) == ("renew AB", "")
        for lane in "AB":
            scheduler.restarting(lane)
        scheduler.ready("B")
        assert race.taken() == ""
        scheduler.ready("A")
        assert (race.taken(), race.starts) == ("B2", 1)

    def test_only_lanes_that_train_are_replaced_and_none_before_the_first_round(self, race, begin):
        race.renewals = 1
        scheduler = begin("ABC")
        assert race.renewals == 1
        scheduler.pause("B")
        scheduler.idle("A")
        scheduler.idle("C")
        assert race.taken() == "C1, renew AC"

    def test_an_experiment_on_one_lane_is_not_interrupted(self, race, begin):
        race.renewals = 1
        scheduler = begin("AB")
        scheduler.set_exclusive("A")
        for _ in range(3):
            scheduler.idle("A")
        assert race.taken() == "A2, A3, A4" and race.renewals == 1


class TestSpareWorker:
    """Time to load between two rounds, and when nothing else may run."""

    def test_before_a_round_once_and_neither_within_one_nor_before_the_first_verdict(self, race, begin):
        scheduler = begin("AB")
        race.spare_loads = 9
        for lane in "ABBA" * (FIRST_ROUNDS // 2 - 1) + "ABB":
            scheduler.idle(lane)
        assert race.taken().endswith(f"B{FIRST_ROUNDS}, A{FIRST_ROUNDS}")
        assert "load" not in race.taken()
        scheduler.idle("A")
        assert (race.taken(), race.slice_of, race.quiet) == ("load", "", False)
        scheduler.spare_loaded()
        assert (race.taken(), race.quiet) == (f"A{FIRST_ROUNDS + 1}", True)
        scheduler.idle("A")
        scheduler.idle("B")
        assert race.taken() == f"B{FIRST_ROUNDS + 1}, load"

    def test_not_during_an_experiment(self, race, begin):
        scheduler = begin("AB")
        scheduler.set_exclusive("A")
        race.spare_loads = 1
        scheduler.idle("A")
        scheduler.idle("A")
        assert "load" not in race.taken()

    @pytest.mark.parametrize("mode", [TURNS, CONCURRENT])
    def test_it_is_told_when_nothing_is_measured(self, race, begin, mode):
        scheduler = begin("AB", mode)
        assert race.quiet
        scheduler.pause("AB")
        scheduler.idle("A")
        scheduler.idle("B")
        assert not race.quiet
        scheduler.resume("A")
        assert race.quiet
        scheduler.ended("A")
        assert not race.quiet


class TestExclusive:
    """A lane that an experiment has for itself."""

    def test_in_turns_it_gets_every_slice_when_the_other_has_ended_its_own(self, race, begin):
        scheduler = begin("AB")
        scheduler.set_exclusive("B")
        assert (race.taken(), race.slice_of) == ("", "A")
        scheduler.idle("A")
        scheduler.idle("B")
        assert (race.taken(), race.suspended, race.slice_of) == ("B1, B2", {"A"}, "B")

    def test_training_at_once_the_others_hold_and_it_goes_over_to_slices(self, race, begin):
        scheduler = begin("AB", CONCURRENT)
        scheduler.set_exclusive("A")
        assert race.taken() == "pause A, pause B"
        scheduler.idle("B")
        assert race.taken() == ""
        scheduler.idle("A")
        assert (race.taken(), race.suspended) == ("A1", {"B"})

    def test_afterwards_all_go_on_as_the_mode_says(self, race, begin):
        scheduler = begin("AB", CONCURRENT)
        scheduler.set_exclusive("A")
        scheduler.idle("B")
        scheduler.idle("A")
        race.taken()
        scheduler.set_exclusive("")
        assert (race.taken(), race.slice_of) == ("run B", "")
        scheduler.idle("A")
        assert (race.taken(), race.suspended) == ("run A", set())

    def test_a_race_of_one_lane_goes_over_to_slices_and_back(self, race, begin):
        scheduler = begin("A")
        scheduler.set_exclusive("A")
        scheduler.idle("A")
        assert race.taken() == "pause A, A1"
        scheduler.set_exclusive("")
        scheduler.idle("A")
        assert (race.taken(), race.suspended) == ("run A", set())

    def test_its_slices_may_be_of_another_length(self, race, begin):
        scheduler = begin("AB")
        scheduler.idle("A")
        race.seconds.clear()
        scheduler.set_exclusive("A", 0.25)
        scheduler.idle("B")
        scheduler.set_exclusive("")
        scheduler.idle("A")
        assert race.seconds == [0.25, 0.5]


# ---------------------------------------------------------------- unresponsive lanes


def test_the_others_go_on_and_in_its_turn_it_is_continued_and_sent_nothing_more(race, begin):
    scheduler = begin()
    scheduler.skip("A")
    assert (race.suspended, race.slice_of) == ({"A"}, "B")
    assert not scheduler.responded("A"), "it said so before it was suspended"
    scheduler.idle("B")
    scheduler.idle("B")
    assert race.taken() == "B1, B2"
    assert (race.slice_of, race.suspended) == ("A", {"B"})
    scheduler.skip("A")
    assert (race.slice_of, race.suspended) == ("A", {"B"})
    assert scheduler.responded("A")
    scheduler.idle("A")
    assert (race.slice_of, race.taken()) == ("B", "B3")


def test_without_others_it_is_waited_for(race, begin):
    scheduler = begin("A")
    scheduler.skip("A")
    assert race.suspended == set()
    assert scheduler.responded("A")


def test_concurrent_lanes_are_not_suspended(race, begin):
    scheduler = begin(mode=CONCURRENT)
    scheduler.skip("A")
    assert (race.taken(), race.suspended) == ("", set())
    assert scheduler.responded("A")


@pytest.mark.parametrize("mode", [TURNS, CONCURRENT])
def test_the_others_begin_without_one_that_hangs_before_it_is_ready(race, begin, mode):
    scheduler = begin("ABC", mode, ready="BC")
    assert race.starts == 0
    scheduler.skip("A")
    assert race.starts == 1
    assert "A" not in race.taken()
    assert "A" not in race.suspended


def test_one_that_goes_on_getting_ready_has_the_machine_for_itself_again(race, begin):
    scheduler = begin("AB", ready="B")
    scheduler.skip("A")
    assert race.slice_of == "B"
    assert scheduler.responded("A")
    scheduler.idle("B")
    assert race.slice_of == ""
    scheduler.ready("A")
    assert race.slice_of in ("A", "B")


@pytest.mark.parametrize("end", ["ended", "restarting"])
def test_an_end_or_a_restart_is_the_end_of_it(race, begin, end):
    scheduler = begin()
    scheduler.skip("A")
    getattr(scheduler, end)("A")
    race.taken()
    scheduler.ready("A")
    scheduler.idle("B")
    scheduler.idle("B")
    assert "A" in race.taken()


def test_one_that_is_paused_while_it_hangs_is_not_said_to_be_paused_and_comes_back(race, begin):
    scheduler = begin()
    scheduler.skip("A")
    scheduler.pause("A")
    assert race.said_paused == []
    scheduler.idle("B")
    assert race.slice_of == "B"
    scheduler.resume("A")
    scheduler.idle("B")
    scheduler.idle("B")
    assert race.slice_of == "A"


# ---------------------------------------------------------------- the order of slices


@pytest.mark.parametrize(
    ("runnable", "dealt"),
    [
        ([("AB", 8)], "A1 B1 B2 A2 A3 B3 B4 A4"),
        ([("ABC", 6)], "A1 B1 C1 C2 B2 A2"),
        ([("A", 3)], "A1 A2 A3"),
        ([("ABC", 1), ("AC", 2)], "A1 C1 C2"),
        ([("ABC", 1), ("AC", 1), ("ABC", 3)], "A1 C1 C2 B2 A2"),
        ([("AB", 1), ("ABC", 4)], "A1 B1 C2 B2 A2"),
        ([("AB", 1), ("", 0), ("AB", 3)], "A1 B2 A2 A3"),
    ],
    ids=["two", "three", "one", "one cannot run", "one comes back", "one joins", "the round is broken off"],
)
def test_every_other_round_runs_backwards_with_the_lanes_that_can_train(runnable, dealt):
    order, found = RoundOrder(), []
    for lanes, slices in runnable:
        if not slices:
            order.break_off()
        found += ["{}{}".format(*order.next(lanes)) for _ in range(slices)]
    assert " ".join(found) == dealt


@given(st.lists(st.sets(st.sampled_from("ABC")).map(sorted), max_size=40))
def test_no_lane_has_two_slices_of_one_round_and_rounds_go_up(runnable):
    order = RoundOrder()
    dealt = [one for lanes in runnable if (one := order.next(lanes)) is not None]
    assert len(set(dealt)) == len(dealt)
    assert all(later[1] - earlier[1] in (0, 1) for earlier, later in pairwise(dealt))
    assert len(dealt) == sum(bool(lanes) for lanes in runnable)


# ---------------------------------------------------------------- several machines


MACHINES = {"A": "x", "B": "x", "C": "y"}


@pytest.fixture
def two_machines(race):
    """A race of A and B on one machine and C on another; the first slices have begun."""
    scheduler = Scheduler(race, race)
    scheduler.begin("ABC", TURNS, 0.5, MACHINES)
    for lane in "ABC":
        scheduler.ready(lane)
    return scheduler


def test_lanes_of_one_machine_take_turns_and_those_of_others_train_meanwhile(race, two_machines):
    assert race.taken() == "A1, C1"
    assert (race.slice_of, race.beside) == ("C", "A")
    two_machines.idle("A")
    assert (race.taken(), race.slice_of, race.beside) == ("B1", "B", "C")
    two_machines.idle("B")
    assert (race.taken(), race.slice_of, race.beside) == ("", "", "C")
    two_machines.idle("C")
    assert race.taken() == "C2, B2"
    two_machines.idle("B")
    assert race.taken() == "A2"


def test_the_next_round_begins_when_every_lane_had_its_slice(race, two_machines):
    race.taken()
    two_machines.idle("C")
    assert race.taken() == "", "C waits for A and B"
    assert "C" in race.suspended
    two_machines.idle("A")
    assert race.taken() == "B1"
    two_machines.idle("B")
    assert race.taken() == "C2, B2"


def test_a_machine_whose_lanes_are_over_keeps_the_others_waiting_no_longer(race, two_machines):
    race.taken()
    two_machines.idle("A")
    two_machines.idle("B")
    race.taken()
    two_machines.ended("C")
    assert race.taken() == "B2"
    assert race.beside == ""


def test_processes_are_renewed_between_two_rounds_of_all_machines(race, two_machines):
    race.taken()
    race.renewals = 1
    two_machines.idle("C")
    two_machines.idle("A")
    assert race.taken() == "B1"
    two_machines.idle("B")
    assert race.taken() == "renew ABC"


def test_a_lane_that_has_the_race_for_itself_trains_alone_on_all_machines(race, two_machines):
    race.taken()
    two_machines.set_exclusive("C", 2.0)
    for lane in "AC":
        two_machines.idle(lane)
    assert (race.taken(), race.slice_of, race.beside) == ("C2", "C", "")
    two_machines.set_exclusive("")
    two_machines.idle("C")
    assert race.taken() == "A3, C3"


@given(st.lists(st.tuples(st.sampled_from("ABCD"), st.booleans()), max_size=60))
def test_no_machine_has_two_slices_at_once_and_rounds_are_whole(events):
    """Lanes end their slices in any order, and may be paused in between."""
    machines = {"A": "x", "B": "x", "C": "y", "D": "z"}
    race = FakeRace()
    scheduler = Scheduler(race, race)
    scheduler.begin("ABCD", TURNS, 0.5, machines)
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

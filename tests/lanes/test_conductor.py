"""Who trains when, with orders that are only written down."""

from __future__ import annotations

import pytest

from tfmon.lanes.scheduler import Scheduler
from tfmon.model.session import CONCURRENT, TURNS
from tfmon.model.wire import Pause, Run, RunSlice


class FakeOrders:
    """Writes orders down, and keeps what they make of the lanes."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.seconds: list[float] = []
        self.frozen: set[str] = set()
        self.starts = 0
        self.measured = False
        self.to_lend = 0
        self.whose = ""
        self.said_paused: list[str] = []

    def send(self, lane, request):
        assert lane not in self.frozen, "a frozen lane would not read this"
        match request:
            case RunSlice():
                self.seconds.append(request.seconds)
                self.log.append(f"{lane}{request.number}")
            case Run():
                self.log.append(f"run {lane}")
            case Pause():
                self.log.append(f"hold {lane}")

    def freeze(self, lane):
        self.frozen.add(lane)

    def thaw(self, lane):
        self.frozen.discard(lane)

    def started(self):
        self.starts += 1

    def turn(self, lane):
        self.whose = lane

    def paused(self, lane):
        self.said_paused.append(lane)

    def measuring(self, *, yes):
        self.measured = yes

    def lend(self) -> bool:
        if self.to_lend:
            self.to_lend -= 1
            self.log.append("lent")
            return True
        return False

    def taken(self) -> str:
        """Return the requests sent since the last call."""
        log, self.log = self.log, []
        return ", ".join(log)


@pytest.fixture
def orders():
    return FakeOrders()


@pytest.fixture
def begin(orders):
    """Start a race; with `ready`, all its lanes are, and their first requests are taken."""

    def start(lanes: str = "AB", mode: str = TURNS, ready: bool = True) -> Scheduler:
        scheduler = Scheduler(orders)
        scheduler.begin(lanes, mode, 0.5)
        if ready:
            for lane in lanes:
                scheduler.ready(lane)
            orders.taken()
        return scheduler

    return start


class TestStart:
    @pytest.mark.parametrize(("mode", "first"), [(TURNS, "A1"), (CONCURRENT, "run A, run B, run C")])
    def test_the_signal_comes_when_the_last_lane_is_ready(self, orders, begin, mode, first):
        scheduler = begin("ABC", mode, ready=False)
        scheduler.ready("C")
        scheduler.ready("A")
        assert (orders.taken(), orders.starts) == ("", 0)
        scheduler.ready("B")
        assert (orders.taken(), orders.starts) == (first, 1)

    @pytest.mark.parametrize(("mode", "first"), [(TURNS, "A1"), (CONCURRENT, "run A")])
    @pytest.mark.parametrize("fails_first", [True, False])
    def test_a_lane_that_fails_does_not_block_the_others(self, orders, begin, mode, first, fails_first):
        scheduler = begin("AB", mode, ready=False)
        for step in (scheduler.over, scheduler.ready)[:: 1 if fails_first else -1]:
            step("B" if step == scheduler.over else "A")
        assert (orders.taken(), orders.starts) == (first, 1)

    def test_when_all_lanes_fail_nothing_starts(self, orders, begin):
        scheduler = begin(ready=False)
        scheduler.over("A")
        scheduler.over("B")
        assert (orders.taken(), orders.starts) == ("", 0)

    def test_lanes_that_wait_for_the_signal_are_frozen_in_turns_only(self, orders, begin):
        begin("AB", CONCURRENT, ready=False).ready("A")
        assert orders.frozen == set()
        begin("AB", TURNS, ready=False).ready("A")
        assert orders.frozen == {"A"}

    def test_lanes_paused_before_the_signal_start_when_they_may(self, orders, begin):
        scheduler = begin(ready=False)
        scheduler.pause("AB")
        scheduler.ready("A")
        scheduler.ready("B")
        assert (orders.taken(), orders.starts) == ("", 0)
        scheduler.resume("B")
        assert (orders.taken(), orders.starts) == ("B1", 1)

    def test_the_signal_is_given_once_in_a_race_and_again_in_the_next(self, orders, begin):
        scheduler = begin()
        scheduler.restarting("A")
        scheduler.ready("A")
        assert orders.starts == 1
        scheduler.begin("C", TURNS, 0.5)
        scheduler.ready("C")
        assert orders.starts == 2


class TestTurns:
    def test_turns_alternate_a_b_b_a(self, orders, begin):
        scheduler = begin()
        for lane in "ABBAABB":
            assert orders.whose == lane
            scheduler.stood_still(lane)
        assert orders.taken() == "B1, B2, A2, A3, B3, B4, A4"

    def test_all_but_the_lane_that_trains_are_frozen(self, orders, begin):
        scheduler = begin("ABC")
        for lane in "ABCCBA":
            assert orders.whose == lane
            assert orders.frozen == set("ABC") - {lane}
            scheduler.stood_still(lane)

    def test_a_lane_alone_trains_without_turns(self, orders, begin):
        scheduler = begin("A", ready=False)
        scheduler.ready("A")
        assert (orders.taken(), orders.frozen, orders.whose) == ("run A", set(), "")

    def test_a_lane_that_is_over_in_its_turn_passes_it_on(self, orders, begin):
        scheduler = begin()
        scheduler.over("A")
        assert (orders.taken(), orders.whose) == ("B1", "B")

    def test_the_last_lane_goes_on_alone(self, orders, begin):
        scheduler = begin()
        scheduler.over("B")
        scheduler.stood_still("A")
        scheduler.stood_still("A")
        assert orders.taken() == "A2, A3"

    def test_when_the_last_lane_is_over_nobody_has_the_turn(self, orders, begin):
        scheduler = begin()
        scheduler.over("A")
        scheduler.over("B")
        assert (orders.taken(), orders.whose) == ("B1", "")

    def test_an_end_that_is_told_twice_takes_no_turn_away(self, orders, begin):
        scheduler = begin()
        scheduler.over("A")
        scheduler.over("A")
        assert orders.taken() == "B1"


class TestRestart:
    def test_nobody_gets_a_turn_while_a_lane_gets_ready(self, orders, begin):
        scheduler = begin()
        scheduler.restarting("B")
        assert orders.whose == "A"
        scheduler.stood_still("A")
        assert (orders.taken(), orders.whose, orders.frozen) == ("", "", {"A", "B"})
        scheduler.ready("B")
        assert (orders.taken(), orders.whose) == ("B1", "B")

    def test_a_lane_that_is_restarted_in_its_turn_has_it_no_more(self, orders, begin):
        scheduler = begin()
        scheduler.restarting("A")
        assert (orders.taken(), orders.whose) == ("", "")
        scheduler.ready("A")
        assert orders.taken() == "B1"

    def test_a_lane_that_was_over_comes_back(self, orders, begin):
        scheduler = begin()
        scheduler.over("B")
        scheduler.restarting("B")
        scheduler.stood_still("A")
        assert orders.taken() == ""
        scheduler.ready("B")
        assert orders.taken() == "B1"

    def test_a_restart_that_fails_lets_the_others_go_on(self, orders, begin):
        scheduler = begin()
        scheduler.restarting("A")
        scheduler.over("A")
        assert orders.taken() == "B1"

    def test_at_once_the_others_train_on_and_the_new_one_joins(self, orders, begin):
        scheduler = begin(mode=CONCURRENT)
        scheduler.restarting("A")
        assert orders.taken() == ""
        scheduler.ready("A")
        assert orders.taken() == "run A"


class TestPause:
    def test_in_turns_a_paused_lane_is_passed_over(self, orders, begin):
        scheduler = begin()
        scheduler.pause("B")
        assert (orders.taken(), orders.frozen, orders.whose) == ("", {"B"}, "A")
        assert orders.said_paused == ["B"]
        scheduler.stood_still("A")
        assert orders.taken() == "A2"

    def test_a_lane_paused_in_its_turn_passes_it_on_when_it_stands(self, orders, begin):
        scheduler = begin()
        scheduler.pause("A")
        assert (orders.taken(), orders.whose) == ("hold A", "A")
        scheduler.stood_still("A")
        assert (orders.taken(), orders.whose, orders.frozen) == ("B1", "B", {"A"})
        assert orders.said_paused == ["A"]

    def test_pausing_again_does_not_thaw(self, orders, begin):
        scheduler = begin()
        scheduler.pause("B")
        scheduler.pause("B")
        assert (orders.taken(), orders.frozen) == ("", {"B"})

    def test_all_paused_nobody_has_the_turn_until_one_may_run(self, orders, begin):
        scheduler = begin()
        scheduler.pause("AB")
        scheduler.stood_still("A")
        assert (orders.taken(), orders.whose, orders.frozen) == ("hold A", "", {"A", "B"})
        scheduler.resume("AB")
        assert (orders.taken(), orders.frozen) == ("B2", {"A"})

    def test_at_once_only_the_paused_lane_stands(self, orders, begin):
        scheduler = begin(mode=CONCURRENT)
        scheduler.pause("A")
        scheduler.stood_still("A")
        assert (orders.taken(), orders.frozen) == ("hold A", set())
        scheduler.resume("A")
        assert orders.taken() == "run A"

    def test_a_lane_that_may_run_before_it_stood_still_runs_on(self, orders, begin):
        scheduler = begin(mode=CONCURRENT)
        scheduler.pause("A")
        scheduler.resume("A")
        assert orders.taken() == "hold A"
        scheduler.stood_still("A")
        assert orders.taken() == "run A"

    def test_a_lane_that_is_over_or_not_ready_is_told_nothing(self, orders, begin):
        scheduler = begin("ABC")
        scheduler.over("C")
        scheduler.restarting("B")
        scheduler.pause("BC")
        assert orders.taken() == ""


class TestMode:
    def test_from_turns_to_at_once_all_run_when_the_slice_is_over(self, orders, begin):
        scheduler = begin("ABC")
        scheduler.set_mode(CONCURRENT)
        assert (orders.taken(), orders.frozen, orders.whose) == ("run B, run C", set(), "")
        scheduler.stood_still("A")
        assert (orders.taken(), orders.frozen) == ("run A", set())

    def test_from_at_once_to_turns_all_stand_still_before_the_first_turn(self, orders, begin):
        scheduler = begin(mode=CONCURRENT)
        scheduler.set_mode(TURNS)
        assert orders.taken() == "hold A, hold B"
        scheduler.stood_still("B")
        assert (orders.taken(), orders.frozen) == ("", {"B"})
        scheduler.stood_still("A")
        assert (orders.taken(), orders.frozen, orders.whose) == ("A1", {"B"}, "A")

    def test_a_lane_that_stood_already_is_frozen_when_turns_begin(self, orders, begin):
        scheduler = begin(mode=CONCURRENT)
        scheduler.pause("B")
        scheduler.stood_still("B")
        orders.taken()
        scheduler.set_mode(TURNS)
        assert (orders.taken(), orders.frozen) == ("hold A", {"B"})
        scheduler.stood_still("A")
        assert (orders.taken(), orders.frozen) == ("A1", {"B"})

    def test_rounds_are_not_counted_anew(self, orders, begin):
        scheduler = begin()
        scheduler.set_mode(CONCURRENT)
        scheduler.stood_still("A")
        scheduler.set_mode(TURNS)
        orders.taken()
        scheduler.stood_still("A")
        scheduler.stood_still("B")
        assert orders.taken() == "B2"

    def test_the_same_mode_again_changes_nothing(self, orders, begin):
        scheduler = begin()
        scheduler.set_mode(TURNS)
        assert (orders.taken(), orders.whose) == ("", "A")

    def test_a_mode_chosen_before_the_signal_counts(self, orders, begin):
        scheduler = begin(ready=False)
        scheduler.ready("A")
        scheduler.set_mode(CONCURRENT)
        assert orders.taken() == ""
        scheduler.ready("B")
        assert (orders.taken(), orders.frozen) == ("run A, run B", set())

    def test_a_lane_alone_runs_on_in_either_mode(self, orders, begin):
        scheduler = begin("A")
        scheduler.set_mode(CONCURRENT)
        assert orders.taken() == ""
        scheduler.set_mode(TURNS)
        assert (orders.taken(), orders.frozen) == ("", set())


class TestLending:
    """Time for something else between two rounds, and word of when nothing is measured."""

    def test_before_a_round_and_never_within_one(self, orders, begin):
        scheduler = begin("AB")
        orders.to_lend = 1
        scheduler.stood_still("A")
        assert orders.taken() == "B1"
        scheduler.stood_still("B")
        assert (orders.taken(), orders.whose, orders.measured) == ("lent", "", False)
        scheduler.returned()
        assert (orders.taken(), orders.measured) == ("B2", True)

    def test_once_a_round(self, orders, begin):
        scheduler = begin("AB")
        orders.to_lend = 9
        scheduler.stood_still("A")
        scheduler.stood_still("B")
        scheduler.returned()
        assert orders.taken() == "B1, lent, B2"
        scheduler.stood_still("B")
        scheduler.stood_still("A")
        assert orders.taken() == "A2, lent"

    def test_nobody_gets_a_turn_meanwhile(self, orders, begin):
        scheduler = begin("AB")
        orders.to_lend = 1
        scheduler.stood_still("A")
        scheduler.stood_still("B")
        orders.taken()
        scheduler.pause("A")
        scheduler.resume("A")
        assert orders.taken() == ""

    def test_not_during_a_trial(self, orders, begin):
        scheduler = begin("AB")
        scheduler.set_exclusive("A")
        orders.to_lend = 1
        scheduler.stood_still("A")
        scheduler.stood_still("A")
        assert "lent" not in orders.taken()

    @pytest.mark.parametrize("mode", [TURNS, CONCURRENT])
    def test_it_is_told_when_nothing_is_measured(self, orders, begin, mode):
        scheduler = begin("AB", mode)
        assert orders.measured
        scheduler.pause("AB")
        scheduler.stood_still("A")
        scheduler.stood_still("B")
        assert not orders.measured
        scheduler.resume("A")
        assert orders.measured
        scheduler.over("A")
        assert not orders.measured


class TestAlone:
    """A lane that a experiment has for itself."""

    def test_in_turns_it_gets_every_slice_when_the_other_has_ended_its_own(self, orders, begin):
        scheduler = begin("AB")
        scheduler.set_exclusive("B")
        assert (orders.taken(), orders.whose) == ("", "A")
        scheduler.stood_still("A")
        scheduler.stood_still("B")
        assert (orders.taken(), orders.frozen, orders.whose) == ("B1, B2", {"A"}, "B")

    def test_training_at_once_the_others_hold_and_it_goes_over_to_slices(self, orders, begin):
        scheduler = begin("AB", CONCURRENT)
        scheduler.set_exclusive("A")
        assert orders.taken() == "hold A, hold B"
        scheduler.stood_still("B")
        assert orders.taken() == ""
        scheduler.stood_still("A")
        assert (orders.taken(), orders.frozen) == ("A1", {"B"})

    def test_afterwards_all_go_on_as_the_mode_says(self, orders, begin):
        scheduler = begin("AB", CONCURRENT)
        scheduler.set_exclusive("A")
        scheduler.stood_still("B")
        scheduler.stood_still("A")
        orders.taken()
        scheduler.set_exclusive("")
        assert (orders.taken(), orders.whose) == ("run B", "")
        scheduler.stood_still("A")
        assert (orders.taken(), orders.frozen) == ("run A", set())

    def test_a_race_of_one_lane_goes_over_to_slices_and_back(self, orders, begin):
        scheduler = begin("A")
        scheduler.set_exclusive("A")
        scheduler.stood_still("A")
        assert orders.taken() == "hold A, A1"
        scheduler.set_exclusive("")
        scheduler.stood_still("A")
        assert (orders.taken(), orders.frozen) == ("run A", set())

    def test_its_slices_may_be_of_another_length(self, orders, begin):
        scheduler = begin("AB")
        scheduler.stood_still("A")
        orders.seconds.clear()
        scheduler.set_exclusive("A", 0.25)
        scheduler.stood_still("B")
        scheduler.set_exclusive("")
        scheduler.stood_still("A")
        assert orders.seconds == [0.25, 0.5]

    def test_another_race_knows_nothing_of_it(self, orders, begin):
        scheduler = begin("AB")
        scheduler.set_exclusive("B")
        scheduler.begin("AB", TURNS, 0.5)
        scheduler.ready("A")
        scheduler.ready("B")
        assert orders.taken() == "A1"

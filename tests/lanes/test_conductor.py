"""Who trains when, with orders that are only written down."""

from __future__ import annotations

import pytest

from tfmon.lanes.scheduler import Conductor
from tfmon.model.session import CONCURRENT, TURNS
from tfmon.model.wire import Hold, Run, Turn


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
            case Turn():
                self.seconds.append(request.seconds)
                self.log.append(f"{lane}{request.number}")
            case Run():
                self.log.append(f"run {lane}")
            case Hold():
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

    def start(lanes: str = "AB", mode: str = TURNS, ready: bool = True) -> Conductor:
        conductor = Conductor(orders)
        conductor.begin(lanes, mode, 0.5)
        if ready:
            for lane in lanes:
                conductor.ready(lane)
            orders.taken()
        return conductor

    return start


class TestStart:
    @pytest.mark.parametrize(("mode", "first"), [(TURNS, "A1"), (CONCURRENT, "run A, run B, run C")])
    def test_the_signal_comes_when_the_last_lane_is_ready(self, orders, begin, mode, first):
        conductor = begin("ABC", mode, ready=False)
        conductor.ready("C")
        conductor.ready("A")
        assert (orders.taken(), orders.starts) == ("", 0)
        conductor.ready("B")
        assert (orders.taken(), orders.starts) == (first, 1)

    @pytest.mark.parametrize(("mode", "first"), [(TURNS, "A1"), (CONCURRENT, "run A")])
    @pytest.mark.parametrize("fails_first", [True, False])
    def test_a_lane_that_fails_does_not_block_the_others(self, orders, begin, mode, first, fails_first):
        conductor = begin("AB", mode, ready=False)
        for step in (conductor.over, conductor.ready)[:: 1 if fails_first else -1]:
            step("B" if step == conductor.over else "A")
        assert (orders.taken(), orders.starts) == (first, 1)

    def test_when_all_lanes_fail_nothing_starts(self, orders, begin):
        conductor = begin(ready=False)
        conductor.over("A")
        conductor.over("B")
        assert (orders.taken(), orders.starts) == ("", 0)

    def test_lanes_that_wait_for_the_signal_are_frozen_in_turns_only(self, orders, begin):
        begin("AB", CONCURRENT, ready=False).ready("A")
        assert orders.frozen == set()
        begin("AB", TURNS, ready=False).ready("A")
        assert orders.frozen == {"A"}

    def test_lanes_paused_before_the_signal_start_when_they_may(self, orders, begin):
        conductor = begin(ready=False)
        conductor.hold("AB")
        conductor.ready("A")
        conductor.ready("B")
        assert (orders.taken(), orders.starts) == ("", 0)
        conductor.run("B")
        assert (orders.taken(), orders.starts) == ("B1", 1)

    def test_the_signal_is_given_once_in_a_race_and_again_in_the_next(self, orders, begin):
        conductor = begin()
        conductor.restarting("A")
        conductor.ready("A")
        assert orders.starts == 1
        conductor.begin("C", TURNS, 0.5)
        conductor.ready("C")
        assert orders.starts == 2


class TestTurns:
    def test_turns_alternate_a_b_b_a(self, orders, begin):
        conductor = begin()
        for lane in "ABBAABB":
            assert orders.whose == lane
            conductor.stood_still(lane)
        assert orders.taken() == "B1, B2, A2, A3, B3, B4, A4"

    def test_all_but_the_lane_that_trains_are_frozen(self, orders, begin):
        conductor = begin("ABC")
        for lane in "ABCCBA":
            assert orders.whose == lane
            assert orders.frozen == set("ABC") - {lane}
            conductor.stood_still(lane)

    def test_a_lane_alone_trains_without_turns(self, orders, begin):
        conductor = begin("A", ready=False)
        conductor.ready("A")
        assert (orders.taken(), orders.frozen, orders.whose) == ("run A", set(), "")

    def test_a_lane_that_is_over_in_its_turn_passes_it_on(self, orders, begin):
        conductor = begin()
        conductor.over("A")
        assert (orders.taken(), orders.whose) == ("B1", "B")

    def test_the_last_lane_goes_on_alone(self, orders, begin):
        conductor = begin()
        conductor.over("B")
        conductor.stood_still("A")
        conductor.stood_still("A")
        assert orders.taken() == "A2, A3"

    def test_when_the_last_lane_is_over_nobody_has_the_turn(self, orders, begin):
        conductor = begin()
        conductor.over("A")
        conductor.over("B")
        assert (orders.taken(), orders.whose) == ("B1", "")

    def test_an_end_that_is_told_twice_takes_no_turn_away(self, orders, begin):
        conductor = begin()
        conductor.over("A")
        conductor.over("A")
        assert orders.taken() == "B1"


class TestRestart:
    def test_nobody_gets_a_turn_while_a_lane_gets_ready(self, orders, begin):
        conductor = begin()
        conductor.restarting("B")
        assert orders.whose == "A"
        conductor.stood_still("A")
        assert (orders.taken(), orders.whose, orders.frozen) == ("", "", {"A", "B"})
        conductor.ready("B")
        assert (orders.taken(), orders.whose) == ("B1", "B")

    def test_a_lane_that_is_restarted_in_its_turn_has_it_no_more(self, orders, begin):
        conductor = begin()
        conductor.restarting("A")
        assert (orders.taken(), orders.whose) == ("", "")
        conductor.ready("A")
        assert orders.taken() == "B1"

    def test_a_lane_that_was_over_comes_back(self, orders, begin):
        conductor = begin()
        conductor.over("B")
        conductor.restarting("B")
        conductor.stood_still("A")
        assert orders.taken() == ""
        conductor.ready("B")
        assert orders.taken() == "B1"

    def test_a_restart_that_fails_lets_the_others_go_on(self, orders, begin):
        conductor = begin()
        conductor.restarting("A")
        conductor.over("A")
        assert orders.taken() == "B1"

    def test_at_once_the_others_train_on_and_the_new_one_joins(self, orders, begin):
        conductor = begin(mode=CONCURRENT)
        conductor.restarting("A")
        assert orders.taken() == ""
        conductor.ready("A")
        assert orders.taken() == "run A"


class TestPause:
    def test_in_turns_a_paused_lane_is_passed_over(self, orders, begin):
        conductor = begin()
        conductor.hold("B")
        assert (orders.taken(), orders.frozen, orders.whose) == ("", {"B"}, "A")
        assert orders.said_paused == ["B"]
        conductor.stood_still("A")
        assert orders.taken() == "A2"

    def test_a_lane_paused_in_its_turn_passes_it_on_when_it_stands(self, orders, begin):
        conductor = begin()
        conductor.hold("A")
        assert (orders.taken(), orders.whose) == ("hold A", "A")
        conductor.stood_still("A")
        assert (orders.taken(), orders.whose, orders.frozen) == ("B1", "B", {"A"})
        assert orders.said_paused == ["A"]

    def test_pausing_again_does_not_thaw(self, orders, begin):
        conductor = begin()
        conductor.hold("B")
        conductor.hold("B")
        assert (orders.taken(), orders.frozen) == ("", {"B"})

    def test_all_paused_nobody_has_the_turn_until_one_may_run(self, orders, begin):
        conductor = begin()
        conductor.hold("AB")
        conductor.stood_still("A")
        assert (orders.taken(), orders.whose, orders.frozen) == ("hold A", "", {"A", "B"})
        conductor.run("AB")
        assert (orders.taken(), orders.frozen) == ("B2", {"A"})

    def test_at_once_only_the_paused_lane_stands(self, orders, begin):
        conductor = begin(mode=CONCURRENT)
        conductor.hold("A")
        conductor.stood_still("A")
        assert (orders.taken(), orders.frozen) == ("hold A", set())
        conductor.run("A")
        assert orders.taken() == "run A"

    def test_a_lane_that_may_run_before_it_stood_still_runs_on(self, orders, begin):
        conductor = begin(mode=CONCURRENT)
        conductor.hold("A")
        conductor.run("A")
        assert orders.taken() == "hold A"
        conductor.stood_still("A")
        assert orders.taken() == "run A"

    def test_a_lane_that_is_over_or_not_ready_is_told_nothing(self, orders, begin):
        conductor = begin("ABC")
        conductor.over("C")
        conductor.restarting("B")
        conductor.hold("BC")
        assert orders.taken() == ""


class TestMode:
    def test_from_turns_to_at_once_all_run_when_the_slice_is_over(self, orders, begin):
        conductor = begin("ABC")
        conductor.set_mode(CONCURRENT)
        assert (orders.taken(), orders.frozen, orders.whose) == ("run B, run C", set(), "")
        conductor.stood_still("A")
        assert (orders.taken(), orders.frozen) == ("run A", set())

    def test_from_at_once_to_turns_all_stand_still_before_the_first_turn(self, orders, begin):
        conductor = begin(mode=CONCURRENT)
        conductor.set_mode(TURNS)
        assert orders.taken() == "hold A, hold B"
        conductor.stood_still("B")
        assert (orders.taken(), orders.frozen) == ("", {"B"})
        conductor.stood_still("A")
        assert (orders.taken(), orders.frozen, orders.whose) == ("A1", {"B"}, "A")

    def test_a_lane_that_stood_already_is_frozen_when_turns_begin(self, orders, begin):
        conductor = begin(mode=CONCURRENT)
        conductor.hold("B")
        conductor.stood_still("B")
        orders.taken()
        conductor.set_mode(TURNS)
        assert (orders.taken(), orders.frozen) == ("hold A", {"B"})
        conductor.stood_still("A")
        assert (orders.taken(), orders.frozen) == ("A1", {"B"})

    def test_rounds_are_not_counted_anew(self, orders, begin):
        conductor = begin()
        conductor.set_mode(CONCURRENT)
        conductor.stood_still("A")
        conductor.set_mode(TURNS)
        orders.taken()
        conductor.stood_still("A")
        conductor.stood_still("B")
        assert orders.taken() == "B2"

    def test_the_same_mode_again_changes_nothing(self, orders, begin):
        conductor = begin()
        conductor.set_mode(TURNS)
        assert (orders.taken(), orders.whose) == ("", "A")

    def test_a_mode_chosen_before_the_signal_counts(self, orders, begin):
        conductor = begin(ready=False)
        conductor.ready("A")
        conductor.set_mode(CONCURRENT)
        assert orders.taken() == ""
        conductor.ready("B")
        assert (orders.taken(), orders.frozen) == ("run A, run B", set())

    def test_a_lane_alone_runs_on_in_either_mode(self, orders, begin):
        conductor = begin("A")
        conductor.set_mode(CONCURRENT)
        assert orders.taken() == ""
        conductor.set_mode(TURNS)
        assert (orders.taken(), orders.frozen) == ("", set())


class TestLending:
    """Time for something else between two rounds, and word of when nothing is measured."""

    def test_before_a_round_and_never_within_one(self, orders, begin):
        conductor = begin("AB")
        orders.to_lend = 1
        conductor.stood_still("A")
        assert orders.taken() == "B1"
        conductor.stood_still("B")
        assert (orders.taken(), orders.whose, orders.measured) == ("lent", "", False)
        conductor.returned()
        assert (orders.taken(), orders.measured) == ("B2", True)

    def test_once_a_round(self, orders, begin):
        conductor = begin("AB")
        orders.to_lend = 9
        conductor.stood_still("A")
        conductor.stood_still("B")
        conductor.returned()
        assert orders.taken() == "B1, lent, B2"
        conductor.stood_still("B")
        conductor.stood_still("A")
        assert orders.taken() == "A2, lent"

    def test_nobody_gets_a_turn_meanwhile(self, orders, begin):
        conductor = begin("AB")
        orders.to_lend = 1
        conductor.stood_still("A")
        conductor.stood_still("B")
        orders.taken()
        conductor.hold("A")
        conductor.run("A")
        assert orders.taken() == ""

    def test_not_during_a_trial(self, orders, begin):
        conductor = begin("AB")
        conductor.set_alone("A")
        orders.to_lend = 1
        conductor.stood_still("A")
        conductor.stood_still("A")
        assert "lent" not in orders.taken()

    @pytest.mark.parametrize("mode", [TURNS, CONCURRENT])
    def test_it_is_told_when_nothing_is_measured(self, orders, begin, mode):
        conductor = begin("AB", mode)
        assert orders.measured
        conductor.hold("AB")
        conductor.stood_still("A")
        conductor.stood_still("B")
        assert not orders.measured
        conductor.run("A")
        assert orders.measured
        conductor.over("A")
        assert not orders.measured


class TestAlone:
    """A lane that a trial has for itself."""

    def test_in_turns_it_gets_every_slice_when_the_other_has_ended_its_own(self, orders, begin):
        conductor = begin("AB")
        conductor.set_alone("B")
        assert (orders.taken(), orders.whose) == ("", "A")
        conductor.stood_still("A")
        conductor.stood_still("B")
        assert (orders.taken(), orders.frozen, orders.whose) == ("B1, B2", {"A"}, "B")

    def test_training_at_once_the_others_hold_and_it_goes_over_to_slices(self, orders, begin):
        conductor = begin("AB", CONCURRENT)
        conductor.set_alone("A")
        assert orders.taken() == "hold A, hold B"
        conductor.stood_still("B")
        assert orders.taken() == ""
        conductor.stood_still("A")
        assert (orders.taken(), orders.frozen) == ("A1", {"B"})

    def test_afterwards_all_go_on_as_the_mode_says(self, orders, begin):
        conductor = begin("AB", CONCURRENT)
        conductor.set_alone("A")
        conductor.stood_still("B")
        conductor.stood_still("A")
        orders.taken()
        conductor.set_alone("")
        assert (orders.taken(), orders.whose) == ("run B", "")
        conductor.stood_still("A")
        assert (orders.taken(), orders.frozen) == ("run A", set())

    def test_a_race_of_one_lane_goes_over_to_slices_and_back(self, orders, begin):
        conductor = begin("A")
        conductor.set_alone("A")
        conductor.stood_still("A")
        assert orders.taken() == "hold A, A1"
        conductor.set_alone("")
        conductor.stood_still("A")
        assert (orders.taken(), orders.frozen) == ("run A", set())

    def test_its_slices_may_be_of_another_length(self, orders, begin):
        conductor = begin("AB")
        conductor.stood_still("A")
        orders.seconds.clear()
        conductor.set_alone("A", 0.25)
        conductor.stood_still("B")
        conductor.set_alone("")
        conductor.stood_still("A")
        assert orders.seconds == [0.25, 0.5]

    def test_another_race_knows_nothing_of_it(self, orders, begin):
        conductor = begin("AB")
        conductor.set_alone("B")
        conductor.begin("AB", TURNS, 0.5)
        conductor.ready("A")
        conductor.ready("B")
        assert orders.taken() == "A1"

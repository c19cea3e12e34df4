"""The order of slices."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tfmon.lanes.scheduler import RoundOrder


def deal(order: RoundOrder, lanes: str, number: int) -> str:
    return " ".join("{}{}".format(*order.next(lanes)) for _ in range(number))


def test_every_other_round_runs_backwards():
    assert deal(RoundOrder(), "AB", 8) == "A1 B1 B2 A2 A3 B3 B4 A4"
    assert deal(RoundOrder(), "ABC", 6) == "A1 B1 C1 C2 B2 A2"


def test_a_lane_alone_has_every_turn():
    assert deal(RoundOrder(), "A", 3) == "A1 A2 A3"


def test_without_a_lane_there_is_no_turn():
    order = RoundOrder()
    assert order.next("") is None
    assert order.round == 0


def test_a_lane_that_cannot_run_is_passed_over():
    order = RoundOrder()
    assert deal(order, "ABC", 1) == "A1"
    assert deal(order, "AC", 2) == "C1 C2"


def test_a_lane_that_comes_back_joins_the_next_round():
    order = RoundOrder()
    assert deal(order, "ABC", 1) == "A1"
    assert deal(order, "AC", 1) == "C1"
    assert deal(order, "ABC", 3) == "C2 B2 A2"


def test_a_lane_that_joins_does_not_enter_the_round_that_is_under_way():
    order = RoundOrder()
    assert deal(order, "AB", 1) == "A1"
    assert deal(order, "ABC", 4) == "B1 C2 B2 A2"


def test_a_round_that_is_broken_off_is_not_taken_up_again():
    order = RoundOrder()
    assert deal(order, "AB", 1) == "A1"
    order.break_off()
    assert deal(order, "AB", 3) == "B2 A2 A3"


@settings(deadline=None)
@given(st.lists(st.sets(st.sampled_from("ABC")).map(sorted), max_size=40))
def test_nobody_has_two_turns_of_one_round_and_rounds_go_up(settings_of_lanes):
    order = RoundOrder()
    dealt = [one for lanes in settings_of_lanes if (one := order.next(lanes)) is not None]
    assert len(set(dealt)) == len(dealt)
    assert all(later[1] - earlier[1] in (0, 1) for earlier, later in pairwise(dealt))
    assert len(dealt) == sum(bool(lanes) for lanes in settings_of_lanes)

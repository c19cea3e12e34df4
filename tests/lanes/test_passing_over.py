"""A lane that hangs is passed over: the others go on, and it may come back."""

from __future__ import annotations

import pytest

from tfmon.lanes.scheduler import Scheduler
from tfmon.model.session import CONCURRENT, TURNS

from .test_conductor import FakeOrders


@pytest.fixture
def orders():
    return FakeOrders()


def begin(orders, lanes: str = "AB", mode: str = TURNS, ready: str | None = None) -> Scheduler:
    scheduler = Scheduler(orders)
    scheduler.begin(lanes, mode, 0.5)
    for lane in lanes if ready is None else ready:
        scheduler.ready(lane)
    return scheduler


def test_the_others_go_on_and_it_is_frozen(orders):
    scheduler = begin(orders)
    assert orders.taken() == "A1"
    scheduler.pass_over("A")
    assert (orders.taken(), orders.frozen, orders.whose) == ("B1", {"A"}, "B")


def test_in_its_turn_it_is_thawed_and_asked_for_nothing_more(orders):
    scheduler = begin(orders)
    scheduler.pass_over("A")
    scheduler.stood_still("B")
    scheduler.stood_still("B")
    assert orders.taken() == "A1, B1, B2"
    assert (orders.whose, orders.frozen) == ("A", {"B"})
    scheduler.pass_over("A")
    assert (orders.whose, orders.frozen) == ("A", {"A", "B"} - {"A"})


def test_one_that_wakes_up_in_its_turn_ends_its_slice_and_is_like_the_others_again(orders):
    scheduler = begin(orders)
    scheduler.pass_over("A")
    scheduler.stood_still("B")
    scheduler.stood_still("B")
    orders.taken()
    assert orders.whose == "A"
    assert scheduler.heard("A")
    scheduler.stood_still("A")
    assert (orders.whose, orders.taken()) == ("A", "A3")


def test_a_word_that_comes_after_it_was_frozen_does_not_count(orders):
    scheduler = begin(orders)
    scheduler.pass_over("A")
    assert not scheduler.heard("A")
    assert orders.whose == "B"


def test_without_others_it_is_waited_for(orders):
    scheduler = begin(orders, "A")
    scheduler.pass_over("A")
    assert orders.frozen == set()
    assert scheduler.heard("A")


def test_lanes_that_train_at_once_are_left_alone(orders):
    scheduler = begin(orders, mode=CONCURRENT)
    assert orders.taken() == "run A, run B"
    scheduler.pass_over("A")
    assert (orders.taken(), orders.frozen) == ("", set())
    assert scheduler.heard("A")


@pytest.mark.parametrize("mode", [TURNS, CONCURRENT])
def test_the_others_begin_without_one_that_hangs_before_it_is_ready(orders, mode):
    scheduler = begin(orders, "ABC", mode, ready="BC")
    assert orders.starts == 0
    scheduler.pass_over("A")
    assert orders.starts == 1
    assert "A" not in orders.taken()
    assert "A" not in orders.frozen


def test_one_that_goes_on_getting_ready_has_the_machine_for_itself_again(orders):
    scheduler = begin(orders, "AB", ready="B")
    scheduler.pass_over("A")
    assert orders.whose == "B"
    assert scheduler.heard("A")
    scheduler.stood_still("B")
    assert orders.whose == ""
    scheduler.ready("A")
    assert orders.whose in ("A", "B")


@pytest.mark.parametrize("end", ["over", "restarting"])
def test_an_end_or_a_restart_is_the_end_of_it(orders, end):
    scheduler = begin(orders)
    scheduler.pass_over("A")
    getattr(scheduler, end)("A")
    orders.taken()
    scheduler.ready("A")
    scheduler.stood_still("B")
    scheduler.stood_still("B")
    assert "A" in orders.taken()


def test_one_that_is_held_while_it_hangs_is_not_said_to_be_paused_and_comes_back(orders):
    scheduler = begin(orders)
    scheduler.pass_over("A")
    scheduler.pause("A")
    assert orders.said_paused == []
    scheduler.stood_still("B")
    assert orders.whose == "B"
    scheduler.resume("A")
    scheduler.stood_still("B")
    scheduler.stood_still("B")
    assert orders.whose == "A"

"""A lane that hangs is passed over: the others go on, and it may come back."""

from __future__ import annotations

import pytest

from tfmon.lanes.scheduler import Scheduler
from tfmon.model.race import CONCURRENT, TURNS

from .test_scheduler import FakeRace


@pytest.fixture
def race():
    return FakeRace()


def begin(race, lanes: str = "AB", mode: str = TURNS, ready: str | None = None) -> Scheduler:
    scheduler = Scheduler(race, race)
    scheduler.begin(lanes, mode, 0.5)
    for lane in lanes if ready is None else ready:
        scheduler.ready(lane)
    return scheduler


def test_the_others_go_on_and_it_is_frozen(race):
    scheduler = begin(race)
    assert race.taken() == "A1"
    scheduler.skip("A")
    assert (race.taken(), race.suspended, race.slice_of) == ("B1", {"A"}, "B")


def test_in_its_turn_it_is_thawed_and_asked_for_nothing_more(race):
    scheduler = begin(race)
    scheduler.skip("A")
    scheduler.idle("B")
    scheduler.idle("B")
    assert race.taken() == "A1, B1, B2"
    assert (race.slice_of, race.suspended) == ("A", {"B"})
    scheduler.skip("A")
    assert (race.slice_of, race.suspended) == ("A", {"A", "B"} - {"A"})


def test_one_that_wakes_up_in_its_turn_ends_its_slice_and_is_like_the_others_again(race):
    scheduler = begin(race)
    scheduler.skip("A")
    scheduler.idle("B")
    scheduler.idle("B")
    race.taken()
    assert race.slice_of == "A"
    assert scheduler.responded("A")
    scheduler.idle("A")
    assert (race.slice_of, race.taken()) == ("A", "A3")


def test_a_word_that_comes_after_it_was_frozen_does_not_count(race):
    scheduler = begin(race)
    scheduler.skip("A")
    assert not scheduler.responded("A")
    assert race.slice_of == "B"


def test_without_others_it_is_waited_for(race):
    scheduler = begin(race, "A")
    scheduler.skip("A")
    assert race.suspended == set()
    assert scheduler.responded("A")


def test_lanes_that_train_at_once_are_left_alone(race):
    scheduler = begin(race, mode=CONCURRENT)
    assert race.taken() == "run A, run B"
    scheduler.skip("A")
    assert (race.taken(), race.suspended) == ("", set())
    assert scheduler.responded("A")


@pytest.mark.parametrize("mode", [TURNS, CONCURRENT])
def test_the_others_begin_without_one_that_hangs_before_it_is_ready(race, mode):
    scheduler = begin(race, "ABC", mode, ready="BC")
    assert race.starts == 0
    scheduler.skip("A")
    assert race.starts == 1
    assert "A" not in race.taken()
    assert "A" not in race.suspended


def test_one_that_goes_on_getting_ready_has_the_machine_for_itself_again(race):
    scheduler = begin(race, "AB", ready="B")
    scheduler.skip("A")
    assert race.slice_of == "B"
    assert scheduler.responded("A")
    scheduler.idle("B")
    assert race.slice_of == ""
    scheduler.ready("A")
    assert race.slice_of in ("A", "B")


@pytest.mark.parametrize("end", ["ended", "restarting"])
def test_an_end_or_a_restart_is_the_end_of_it(race, end):
    scheduler = begin(race)
    scheduler.skip("A")
    getattr(scheduler, end)("A")
    race.taken()
    scheduler.ready("A")
    scheduler.idle("B")
    scheduler.idle("B")
    assert "A" in race.taken()


def test_one_that_is_held_while_it_hangs_is_not_said_to_be_paused_and_comes_back(race):
    scheduler = begin(race)
    scheduler.skip("A")
    scheduler.pause("A")
    assert race.said_paused == []
    scheduler.idle("B")
    assert race.slice_of == "B"
    scheduler.resume("A")
    scheduler.idle("B")
    scheduler.idle("B")
    assert race.slice_of == "A"

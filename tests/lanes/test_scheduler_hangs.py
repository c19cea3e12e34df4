"""Lanes that hang: the others go on, and they come back when they say something."""

from __future__ import annotations

import pytest

from tfmon.lanes.scheduler import HUNG_EVERY
from tfmon.model.race import CONCURRENT, TURNS


def others_train(race, scheduler, lanes: str = "B") -> None:
    """Let the others train until the unresponsive lanes are continued."""
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
    others_train(race, scheduler)
    assert race.slice_of == "A"

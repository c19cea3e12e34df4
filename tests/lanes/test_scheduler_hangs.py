"""Lanes that hang: the others go on, and they come back when they say something."""

from __future__ import annotations

import pytest

from tfmon.model.race import CONCURRENT, TURNS


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

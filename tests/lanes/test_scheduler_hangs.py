"""Lanes that hang, and steps that last longer than a slice."""

from __future__ import annotations

import pytest
from support.events import window
from support.scheduling import after

from tfmon.lanes.rounds import SliceBreak, without_breaks
from tfmon.lanes.scheduler import COMPUTING_S, HUNG_EVERY, LONGEST_PART_S, SHARE
from tfmon.model.heartbeat import IN_A_STEP
from tfmon.model.lane_events import SliceEnded
from tfmon.model.readings import SliceLoad


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


# ---------------- slices that do not end soon: steps of seconds, and lanes that do other work than steps


def test_a_lane_that_computes_is_suspended_in_a_step_and_the_others_train_in_the_same_round(race, begin):
    scheduler = begin()
    after(race, scheduler, COMPUTING_S - 0.5)
    assert (race.slice_of, race.taken()) == ("A", "")
    after(race, scheduler, 0.5)
    assert (race.slice_of, race.suspended, race.taken()) == ("B", {"A"}, "B1")
    race.now_s += 0.5
    scheduler.idle("B")
    assert (race.slice_of, race.suspended, race.taken()) == ("A", {"B"}, ""), "it is sent no other slice"
    began_ns = round((100 + COMPUTING_S) * 1e9)
    assert list(scheduler.stops("A")) == [SliceBreak(began_ns, began_ns + 500_000_000, True)]
    scheduler.idle("A")
    assert (race.slice_of, race.taken()) == ("B", "B2")


def test_its_parts_get_longer_and_a_lane_of_short_slices_gets_more_of_them_in_the_round(race, begin):
    scheduler = begin()
    parts = []
    for _ in range(6):
        began_s = race.now_s
        while race.slice_of == "A":
            after(race, scheduler, 0.5)
        parts.append(race.now_s - began_s)
        race.now_s += 0.5
        scheduler.idle("B")
    assert parts == [min(COMPUTING_S * 2**number, LONGEST_PART_S) for number in range(6)]
    assert race.taken() == ", ".join(["B1"] * 6)


def test_two_lanes_of_long_steps_get_one_slice_each_in_a_round(race, begin):
    scheduler = begin()
    after(race, scheduler, COMPUTING_S)
    after(race, scheduler, COMPUTING_S)
    assert (race.slice_of, race.taken()) == ("A", "B1")
    scheduler.idle("A")
    assert race.slice_of == "B"
    scheduler.idle("B")
    assert (race.slice_of, race.taken()) == ("B", "B2"), "nobody got another one meanwhile"


def test_a_step_that_may_wait_is_not_suspended_until_it_does_something_else(race, begin):
    race.computing, race.patience = False, 9.0
    scheduler = begin()
    after(race, scheduler, 8.5)
    assert race.slice_of == "A"
    after(race, scheduler, 0.5)
    assert race.slice_of == "B"
    scheduler.idle("B")
    assert not scheduler.stops("A")[0].computing


def test_the_slice_beside_a_long_one_is_longer_and_beside_short_ones_as_set(race, begin):
    scheduler = begin()
    race.now_s += 30
    scheduler.idle("A")
    race.now_s += 0.5
    scheduler.idle("B")
    race.now_s += 0.5
    scheduler.idle("B")
    assert race.seconds == [0.5, 30 * SHARE, 30 * SHARE, 0.5]


def test_fresh_processes_do_not_come_in_the_middle_of_a_step(race, begin):
    scheduler = begin()
    for lane in "ABBA" * 4:
        scheduler.idle(lane)
    race.renewals = 1
    after(race, scheduler, COMPUTING_S)
    scheduler.idle("B")
    assert (race.slice_of, race.renewals) == ("A", 1)
    scheduler.idle("A")
    assert race.renewals == 0


# ---------------------------------------------------------------- windows in which a lane was suspended

LOAD = SliceLoad(span_ns=1, examples=1, cpu_ns=1)
STOPS = [SliceBreak(3 * 10**9, 5 * 10**9, True), SliceBreak(6 * 10**9, 7 * 10**9, True)]


def test_a_window_of_a_step_in_which_the_lane_was_suspended_has_its_running_time():
    one = window(9 * 10**9, 8 * 10**9, call_ns=8 * 10**9, longest_ns=8 * 10**9, steps=1)
    assert without_breaks(one, STOPS).span_ns == 5 * 10**9
    before = window(10**9, 10**9 // 2)
    assert without_breaks(before, STOPS) is before
    assert without_breaks(SliceEnded(at_ns=1, round=1, load=LOAD), STOPS).load is None


@pytest.mark.parametrize(
    ("stops", "call_s"),
    [([STOPS[0]._replace(computing=False)], 8), ([STOPS[0]._replace(since_ns=0)], 8), (STOPS, 2)],
    ids=["it waited", "it began before the window", "it was not in the call"],
)
def test_a_window_whose_running_time_is_not_known_is_discarded(stops, call_s):
    one = window(9 * 10**9, 8 * 10**9, call_ns=call_s * 10**9, steps=1)
    found = without_breaks(one, stops)
    assert (found.marks, found.span_ns) == ((IN_A_STEP,), one.span_ns)

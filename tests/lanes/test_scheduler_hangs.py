"""Lanes that hang, and steps that last longer than a slice."""

from __future__ import annotations

from support.scheduling import after

from tfmon.lanes.scheduler import COMPUTING_S, HUNG_EVERY, LONGEST_PART_S, SHARE


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

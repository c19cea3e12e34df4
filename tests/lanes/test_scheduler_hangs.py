"""Lanes that hang, and slices that last long."""

from tfmon.lanes.scheduler import HUNG_EVERY, SHARE


def others_train(race, scheduler, lanes: str = "B") -> None:
    """Train the others until the unresponsive lanes are continued."""
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


def test_the_slice_beside_a_long_one_is_longer_and_beside_short_ones_as_set(race, begin):
    scheduler = begin()
    race.now_s += 30
    scheduler.idle("A")
    race.now_s += 0.5
    scheduler.idle("B")
    race.now_s += 0.5
    scheduler.idle("B")
    assert race.seconds == [0.5, 30 * SHARE, 30 * SHARE, 0.5]

"""The order of slices, and changes between two rounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.scheduling import FakeRace

from tfmon.lanes.scheduler import RoundOrder


@pytest.mark.parametrize(
    ("runnable", "dealt"),
    [
        ([("AB", 8)], "A1 B1 B2 A2 A3 B3 B4 A4"),
        ([("ABC", 6)], "A1 B1 C1 C2 B2 A2"),
        ([("A", 3)], "A1 A2 A3"),
        ([("ABC", 1), ("AC", 2)], "A1 C1 C2"),
        ([("ABC", 1), ("AC", 1), ("ABC", 3)], "A1 C1 C2 B2 A2"),
        ([("AB", 1), ("ABC", 4)], "A1 B1 C2 B2 A2"),
        ([("AB", 1), ("", 0), ("AB", 3)], "A1 B2 A2 A3"),
    ],
    ids=["two", "three", "one", "one cannot run", "one comes back", "one joins", "the round is broken off"],
)
def test_every_other_round_runs_backwards_with_the_lanes_that_can_train(runnable, dealt):
    order, found = RoundOrder(), []
    for lanes, slices in runnable:
        if not slices:
            order.break_off()
        found += ["{}{}".format(*order.next(lanes)) for _ in range(slices)]
    assert " ".join(found) == dealt


@given(st.lists(st.tuples(st.sampled_from("ABCD"), st.booleans()), max_size=60))
def test_no_machine_has_two_slices_at_once_and_rounds_are_whole(events):
    """Lanes end their slices in any order, and may be paused in between."""
    machines = {"A": "x", "B": "x", "C": "y", "D": "z"}
    race = FakeRace()
    scheduler = race.scheduler("ABCD", machines=machines)
    for lane in "ABCD":
        scheduler.ready(lane)
    running: dict[str, int] = {}
    seen: list[tuple[int, str]] = []

    def take() -> None:
        for word in filter(None, race.taken().split(", ")):
            lane, number = word[0], int(word[1:])
            assert machines[lane] not in {machines[one] for one in running}, "two lanes train on one machine"
            assert all(number == one for one in running.values()), "two rounds at once"
            assert (number, lane) not in seen
            running[lane] = number
            seen.append((number, lane))

    take()
    paused: set[str] = set()
    for lane, pause in events:
        if lane in running:
            del running[lane]
            scheduler.idle(lane)
        elif pause and lane not in paused:
            paused.add(lane)
            scheduler.pause(lane)
        elif lane in paused:
            paused.discard(lane)
            scheduler.resume(lane)
        take()
        assert running or paused == set("ABCD")
    assert [number for number, _ in seen] == sorted(number for number, _ in seen)


def test_after_a_start_of_all_lanes_between_two_rounds_the_race_goes_on_when_all_are_ready(race, begin):
    scheduler = begin("AB")
    for lane in "AB":
        scheduler.idle(lane)
    for lane in "AB":
        scheduler.restarting(lane)
    race.taken()
    scheduler.ready("B")
    assert race.taken() == ""
    scheduler.ready("A")
    assert (race.taken()[:1], race.starts) == ("A", 1)

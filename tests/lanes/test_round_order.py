"""The order of slices, on one machine and on several."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.scheduling import FakeRace

from tfmon.lanes.rounds import RoundOrder
from tfmon.lanes.scheduler import Scheduler
from tfmon.lanes.spare import LEAST_ROUNDS
from tfmon.model.race import TURNS


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


# ---------------------------------------------------------------- several machines


@pytest.fixture
def two_machines(begin):
    """A race of A and B on one machine and C on another; the first slices have begun."""
    return begin("ABC", machines={"A": "x", "B": "x", "C": "y"})


def test_lanes_of_one_machine_take_turns_and_those_of_others_train_meanwhile(race, two_machines):
    assert (race.slice_of, race.beside) == ("C", "A")
    two_machines.idle("A")
    assert (race.taken(), race.slice_of, race.beside) == ("B1", "B", "C")
    two_machines.idle("B")
    assert (race.taken(), race.slice_of, race.beside) == ("", "", "C")
    two_machines.idle("C")
    assert race.taken() == "C2, B2"
    two_machines.idle("B")
    assert race.taken() == "A2"


def test_a_machine_whose_lanes_are_over_keeps_the_others_waiting_no_longer(race, two_machines):
    two_machines.idle("A")
    two_machines.idle("B")
    race.taken()
    two_machines.ended("C")
    assert race.taken() == "B2"
    assert race.beside == ""


def test_processes_are_renewed_between_two_rounds_of_all_machines(race, two_machines):
    race.renewals = 1
    for lane in "CABCBA" * (LEAST_ROUNDS // 2) + "CA":
        two_machines.idle(lane)
    assert race.taken().endswith(f"B{LEAST_ROUNDS}")
    two_machines.idle("B")
    assert race.taken() == "renew ABC"


def test_a_lane_that_has_the_race_for_itself_trains_alone_on_all_machines(race, two_machines):
    two_machines.set_exclusive("C", 2.0)
    for lane in "AC":
        two_machines.idle(lane)
    assert (race.taken(), race.slice_of, race.beside) == ("C2", "C", "")
    two_machines.set_exclusive("")
    two_machines.idle("C")
    assert race.taken() == "A3, C3"


@given(st.lists(st.tuples(st.sampled_from("ABCD"), st.booleans()), max_size=60))
def test_no_machine_has_two_slices_at_once_and_rounds_are_whole(events):
    """Lanes end their slices in any order, and may be paused in between."""
    machines = {"A": "x", "B": "x", "C": "y", "D": "z"}
    race = FakeRace()
    scheduler = Scheduler(race, race)
    scheduler.begin("ABCD", TURNS, 0.5, machines)
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

"""The order of slices, and what may happen between two rounds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.events import SECOND, phase, tree_sample, window
from support.events import lane as state_of
from support.scheduling import FakeRace

from tfmon.lanes.rounds import RoundOrder, computes, slice_patience_s
from tfmon.lanes.scheduler import FIRST_ROUNDS, Scheduler
from tfmon.lanes.spare import LEAST_ROUNDS
from tfmon.model.lane_state import RACING, ScriptFacts
from tfmon.model.race import TURNS
from tfmon.model.readings import Missing


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


def test_processes_are_renewed_between_two_rounds_of_all_machines(race, begin):
    two_machines = begin("AB C")
    race.renewals = 1
    for lane in "CABCBA" * (LEAST_ROUNDS // 2) + "CA":
        two_machines.idle(lane)
    assert race.taken().endswith(f"B{LEAST_ROUNDS}")
    two_machines.idle("B")
    assert race.taken() == "renew ABC"


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


# ---------------- what may happen between two rounds


class TestFreshProcesses:
    def test_they_come_between_two_rounds_and_the_race_goes_on_when_all_are_ready(self, race, begin):
        scheduler = begin("AB")
        race.renewals = 1
        for lane in "ABBA" * (LEAST_ROUNDS // 2):
            scheduler.idle(lane)
        assert race.renewals == 1, "fewer rounds tell nothing of a process"
        scheduler.idle("A")
        assert race.taken().endswith(f"B{LEAST_ROUNDS}"), "not within a round"
        scheduler.idle("B")
        assert (race.taken(), race.slice_of) == ("renew AB", "")
        for lane in "AB":
            scheduler.restarting(lane)
        scheduler.ready("B")
        assert race.taken() == ""
        scheduler.ready("A")
        assert (race.taken(), race.starts) == (f"B{LEAST_ROUNDS + 1}", 1)

    def test_only_lanes_that_train_are_replaced_and_none_before_the_first_round(self, race, begin):
        race.renewals = 1
        scheduler = begin("ABC")
        assert race.renewals == 1
        scheduler.pause("B")
        for lane in "ACCA" * (LEAST_ROUNDS // 2) + "AC":
            scheduler.idle(lane)
        assert race.taken().endswith(f"C{LEAST_ROUNDS}, renew AC")


@pytest.mark.parametrize(
    ("device", "cpu_pct", "command", "same"),
    [
        ("cpu", 80.0, "", True),
        ("cpu", 79.0, "", False),
        ("cpu", Missing("not sampled"), "", False),
        ("gpu:0", 100.0, "", False),
        ("cpu", 100.0, "python train.py", False),
    ],
)
def test_only_a_step_of_a_scenario_that_keeps_the_cpu_busy_takes_the_same_time_if_it_is_suspended(
    device, cpu_pct, command, same
):
    state = state_of(device, tree_sample(cpu_pct, lane=device))
    assert computes(replace(state, script=ScriptFacts(command))) is same


def test_a_slice_that_lasts_three_times_the_longest_window_is_no_step():
    assert slice_patience_s(state_of("cpu")) == 3.0
    assert slice_patience_s(state_of("cpu", phase(RACING), window(5 * SECOND, span_ns=4 * SECOND))) == 12.0


class TestSpareWorker:
    """Time to load between two rounds, and when nothing else may run."""

    def test_before_a_round_once_and_neither_within_one_nor_before_the_first_verdict(self, race, begin):
        scheduler = begin("AB")
        race.spare_loads = 9
        for lane in "ABBA" * (FIRST_ROUNDS // 2 - 1) + "ABB":
            scheduler.idle(lane)
        assert race.taken().endswith(f"B{FIRST_ROUNDS}, A{FIRST_ROUNDS}")
        assert "load" not in race.taken()
        scheduler.idle("A")
        assert (race.taken(), race.slice_of, race.quiet) == ("load", "", False)
        scheduler.spare_loaded()
        assert (race.taken(), race.quiet) == (f"A{FIRST_ROUNDS + 1}", True)
        scheduler.idle("A")
        scheduler.idle("B")
        assert race.taken() == f"B{FIRST_ROUNDS + 1}, load"

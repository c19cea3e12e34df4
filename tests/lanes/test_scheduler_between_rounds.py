"""What may happen between two rounds: fresh processes, a spare worker that loads, and a lane that is exclusive."""

from __future__ import annotations

import pytest

from tfmon.lanes.scheduler import FIRST_ROUNDS
from tfmon.lanes.spare import LEAST_ROUNDS
from tfmon.model.race import CONCURRENT, TURNS


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

    def test_an_experiment_on_one_lane_is_not_interrupted(self, race, begin):
        race.renewals = 1
        scheduler = begin("AB")
        scheduler.set_exclusive("A")
        for _ in range(3):
            scheduler.idle("A")
        assert race.taken() == "A2, A3, A4" and race.renewals == 1


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

    def test_not_during_an_experiment(self, race, begin):
        scheduler = begin("AB")
        scheduler.set_exclusive("A")
        race.spare_loads = 1
        scheduler.idle("A")
        scheduler.idle("A")
        assert "load" not in race.taken()

    @pytest.mark.parametrize("mode", [TURNS, CONCURRENT])
    def test_it_is_told_when_nothing_is_measured(self, race, begin, mode):
        scheduler = begin("AB", mode)
        assert race.quiet
        scheduler.pause("AB")
        scheduler.idle("A")
        scheduler.idle("B")
        assert not race.quiet
        scheduler.resume("A")
        assert race.quiet
        scheduler.ended("A")
        assert not race.quiet


class TestExclusive:
    """A lane that an experiment has for itself."""

    def test_in_turns_it_gets_every_slice_when_the_other_has_ended_its_own(self, race, begin):
        scheduler = begin("AB")
        scheduler.set_exclusive("B")
        assert (race.taken(), race.slice_of) == ("", "A")
        scheduler.idle("A")
        scheduler.idle("B")
        assert (race.taken(), race.suspended, race.slice_of) == ("B1, B2", {"A"}, "B")

    def test_training_at_once_the_others_hold_and_it_goes_over_to_slices(self, race, begin):
        scheduler = begin("AB", CONCURRENT)
        scheduler.set_exclusive("A")
        assert race.taken() == "pause A, pause B"
        scheduler.idle("B")
        assert race.taken() == ""
        scheduler.idle("A")
        assert (race.taken(), race.suspended) == ("A1", {"B"})

    def test_afterwards_all_go_on_as_the_mode_says(self, race, begin):
        scheduler = begin("AB", CONCURRENT)
        scheduler.set_exclusive("A")
        scheduler.idle("B")
        scheduler.idle("A")
        race.taken()
        scheduler.set_exclusive("")
        assert (race.taken(), race.slice_of) == ("run B", "")
        scheduler.idle("A")
        assert (race.taken(), race.suspended) == ("run A", set())

    def test_a_race_of_one_lane_goes_over_to_slices_and_back(self, race, begin):
        scheduler = begin("A")
        scheduler.set_exclusive("A")
        scheduler.idle("A")
        assert race.taken() == "pause A, A1"
        scheduler.set_exclusive("")
        scheduler.idle("A")
        assert (race.taken(), race.suspended) == ("run A", set())

    def test_its_slices_may_be_of_another_length(self, race, begin):
        scheduler = begin("AB")
        scheduler.idle("A")
        race.seconds.clear()
        scheduler.set_exclusive("A", 0.25)
        scheduler.idle("B")
        scheduler.set_exclusive("")
        scheduler.idle("A")
        assert race.seconds == [0.25, 0.5]

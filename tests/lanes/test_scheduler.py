"""Who trains when: the start signal, turns, restarts, pauses, and a change of the mode."""

from __future__ import annotations

import pytest

from tfmon.model.race import CONCURRENT, TURNS


class TestStart:
    @pytest.mark.parametrize(("mode", "first"), [(TURNS, "C1"), (CONCURRENT, "run C, run A, run B")])
    def test_the_signal_comes_with_the_last_lane_and_the_first_one_that_was_ready_begins(
        self, race, begin, mode, first
    ):
        scheduler = begin("ABC", mode, ready="")
        scheduler.ready("C")
        scheduler.ready("A")
        assert (race.taken(), race.starts) == ("", 0)
        scheduler.ready("B")
        assert (race.taken(), race.starts) == (first, 1)

    @pytest.mark.parametrize(("mode", "first"), [(TURNS, "A1"), (CONCURRENT, "run A")])
    @pytest.mark.parametrize("fails_first", [True, False])
    def test_a_lane_that_fails_does_not_block_the_others(self, race, begin, mode, first, fails_first):
        scheduler = begin("AB", mode, ready="")
        for step in (scheduler.ended, scheduler.ready)[:: 1 if fails_first else -1]:
            step("B" if step == scheduler.ended else "A")
        assert (race.taken(), race.starts) == (first, 1)

    def test_lanes_that_wait_for_the_signal_are_suspended_in_turns_only(self, race, begin):
        begin("AB", CONCURRENT, ready="").ready("A")
        assert race.suspended == set()
        begin("AB", TURNS, ready="").ready("A")
        assert race.suspended == {"A"}

    def test_lanes_paused_before_the_signal_start_when_they_may(self, race, begin):
        scheduler = begin(ready="")
        scheduler.pause("AB")
        scheduler.ready("A")
        scheduler.ready("B")
        assert (race.taken(), race.starts) == ("", 0)
        scheduler.resume("B")
        assert (race.taken(), race.starts) == ("B1", 1)

    def test_the_signal_is_given_once_in_a_race_and_again_in_the_next(self, race, begin):
        scheduler = begin()
        scheduler.restarting("A")
        scheduler.ready("A")
        assert race.starts == 1
        scheduler.begin("C", TURNS, 0.5)
        scheduler.ready("C")
        assert race.starts == 2


class TestTurns:
    def test_turns_alternate_a_b_b_a(self, race, begin):
        scheduler = begin()
        for lane in "ABBAABB":
            assert race.slice_of == lane
            scheduler.idle(lane)
        assert race.taken() == "B1, B2, A2, A3, B3, B4, A4"

    def test_all_but_the_lane_that_trains_are_suspended(self, race, begin):
        scheduler = begin("ABC")
        for lane in "ABCCBA":
            assert race.slice_of == lane
            assert race.suspended == set("ABC") - {lane}
            scheduler.idle(lane)

    def test_a_lane_alone_trains_without_turns(self, race, begin):
        scheduler = begin("A", ready="")
        scheduler.ready("A")
        assert (race.taken(), race.suspended, race.slice_of) == ("run A", set(), "")
        for mode in (CONCURRENT, TURNS):
            scheduler.set_mode(mode)
            assert (race.taken(), race.suspended) == ("", set())

    def test_a_lane_that_is_over_in_its_turn_passes_it_on_and_the_last_one_to_nobody(self, race, begin):
        scheduler = begin()
        scheduler.ended("A")
        assert (race.taken(), race.slice_of) == ("B1", "B")
        scheduler.ended("B")
        assert (race.taken(), race.slice_of) == ("", "")


class TestRestart:
    def test_no_slice_is_granted_while_a_lane_gets_ready(self, race, begin):
        scheduler = begin()
        scheduler.restarting("B")
        assert race.slice_of == "A"
        scheduler.idle("A")
        assert (race.taken(), race.slice_of, race.suspended) == ("", "", {"A", "B"})
        scheduler.ready("B")
        assert (race.taken(), race.slice_of) == ("B1", "B")

    def test_a_lane_that_was_over_comes_back(self, race, begin):
        scheduler = begin()
        scheduler.ended("B")
        scheduler.restarting("B")
        scheduler.idle("A")
        assert race.taken() == ""
        scheduler.ready("B")
        assert race.taken() == "B1"

    def test_a_restart_that_fails_lets_the_others_go_on(self, race, begin):
        scheduler = begin()
        scheduler.restarting("A")
        scheduler.ended("A")
        assert race.taken() == "B1"

    def test_at_once_the_others_train_on_and_the_new_one_joins(self, race, begin):
        scheduler = begin(mode=CONCURRENT)
        scheduler.restarting("A")
        assert race.taken() == ""
        scheduler.ready("A")
        assert race.taken() == "run A"


class TestPause:
    def test_in_turns_a_paused_lane_is_skipped(self, race, begin):
        scheduler = begin()
        scheduler.pause("B")
        assert (race.taken(), race.suspended, race.slice_of) == ("", {"B"}, "A")
        assert race.said_paused == ["B"]
        scheduler.idle("A")
        assert race.taken() == "A2"

    def test_a_lane_paused_in_its_turn_passes_it_on_when_it_stands(self, race, begin):
        scheduler = begin()
        scheduler.pause("A")
        assert (race.taken(), race.slice_of) == ("pause A", "A")
        scheduler.idle("A")
        assert (race.taken(), race.slice_of, race.suspended) == ("B1", "B", {"A"})
        assert race.said_paused == ["A"]

    def test_all_paused_no_slice_is_granted_until_one_may_run(self, race, begin):
        scheduler = begin()
        scheduler.pause("AB")
        scheduler.idle("A")
        assert (race.taken(), race.slice_of, race.suspended) == ("pause A", "", {"A", "B"})
        scheduler.resume("AB")
        assert (race.taken(), race.suspended) == ("B2", {"A"})

    def test_at_once_only_the_paused_lane_stands(self, race, begin):
        scheduler = begin(mode=CONCURRENT)
        scheduler.pause("A")
        scheduler.idle("A")
        assert (race.taken(), race.suspended) == ("pause A", set())
        scheduler.resume("A")
        assert race.taken() == "run A"

    def test_a_lane_that_may_run_before_it_stopped_runs_on(self, race, begin):
        scheduler = begin(mode=CONCURRENT)
        scheduler.pause("A")
        scheduler.resume("A")
        assert race.taken() == "pause A"
        scheduler.idle("A")
        assert race.taken() == "run A"

    def test_a_lane_that_is_over_or_not_ready_is_told_nothing(self, race, begin):
        scheduler = begin("ABC")
        scheduler.ended("C")
        scheduler.restarting("B")
        scheduler.pause("BC")
        assert race.taken() == ""


class TestMode:
    def test_from_turns_to_at_once_all_run_when_the_slice_is_over(self, race, begin):
        scheduler = begin("ABC")
        scheduler.set_mode(CONCURRENT)
        assert (race.taken(), race.suspended, race.slice_of) == ("run B, run C", set(), "")
        scheduler.idle("A")
        assert (race.taken(), race.suspended) == ("run A", set())

    def test_from_at_once_to_turns_all_stand_still_before_the_first_turn(self, race, begin):
        scheduler = begin(mode=CONCURRENT)
        scheduler.set_mode(TURNS)
        assert race.taken() == "pause A, pause B"
        scheduler.idle("B")
        assert (race.taken(), race.suspended) == ("", {"B"})
        scheduler.idle("A")
        assert (race.taken(), race.suspended, race.slice_of) == ("A1", {"B"}, "A")

    def test_a_lane_that_stood_already_is_suspended_when_turns_begin(self, race, begin):
        scheduler = begin(mode=CONCURRENT)
        scheduler.pause("B")
        scheduler.idle("B")
        race.taken()
        scheduler.set_mode(TURNS)
        assert (race.taken(), race.suspended) == ("pause A", {"B"})
        scheduler.idle("A")
        assert (race.taken(), race.suspended) == ("A1", {"B"})

    def test_rounds_are_not_counted_anew(self, race, begin):
        scheduler = begin()
        scheduler.set_mode(CONCURRENT)
        scheduler.idle("A")
        scheduler.set_mode(TURNS)
        race.taken()
        scheduler.idle("A")
        scheduler.idle("B")
        assert race.taken() == "B2"

    def test_a_mode_chosen_before_the_signal_counts(self, race, begin):
        scheduler = begin(ready="")
        scheduler.ready("A")
        scheduler.set_mode(CONCURRENT)
        assert race.taken() == ""
        scheduler.ready("B")
        assert (race.taken(), race.suspended) == ("run A, run B", set())

"""The verdict: who is ahead, by how much, and when that cannot be said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tfmon.analysis.verdict import CONTENDED, find_verdict
from tfmon.model.lane_state import ABSENT, DONE, FAILED, RACING, LaneState
from tfmon.model.lane_statistics import Measurements, SliceSpeed, WindowSums
from tfmon.model.race import CONCURRENT, TURNS, Machine, Race
from tfmon.model.readings import GpuSample, Missing
from tfmon.model.session import Snapshot
from tfmon.model.spec import LaneSpec

LONG_NS = 2_000_000_000_000_000


def lane(name: str, speeds=(), phase: str = RACING, first: int = 1) -> LaneState:
    """Make a lane that had one long slice at each of these speeds."""
    slices = tuple(
        SliceSpeed(number, number, round(speed * LONG_NS / 1e9), LONG_NS)
        for number, speed in enumerate(speeds, first)
    )
    steady = WindowSums(
        windows=len(slices),
        examples=sum(one.examples for one in slices),
        span_ns=sum(one.span_ns for one in slices),
    )
    return LaneState(
        spec=LaneSpec(name, name=name), phase=phase, measurements=Measurements(slices=slices, steady=steady)
    )


def snapshot(*lanes: LaneState, mode: str = TURNS) -> Snapshot:
    return Snapshot(at_ns=0, machine=Machine(), race=Race(mode=mode), lanes=lanes)


def noisy(middle: float, number: int = 12, scatter: float = 0.02, seed: int = 1) -> list[float]:
    return list(middle * np.exp(np.random.default_rng(seed).normal(0, scatter, number)))


class TestNothingToSay:
    @pytest.mark.parametrize(
        ("lanes", "text"),
        [
            ([lane("cpu", noisy(100))], "one lane: nothing to compare it with"),
            ([lane("cpu"), lane("gpu:0")], "no verdict yet: the lanes are getting ready"),
            ([lane("cpu", noisy(100)), lane("gpu:0")], "no verdict yet: the lanes are getting ready"),
            ([lane("cpu", noisy(100)), lane("gpu:0", phase=ABSENT)], "no verdict: 1 of 2 lanes can train"),
            ([lane("cpu", phase=FAILED), lane("gpu:0", phase=ABSENT)], "no verdict: 0 of 2 lanes can train"),
            ([lane("cpu", phase=DONE), lane("gpu:0", phase=DONE)], "no verdict: nothing was measured"),
        ],
    )
    @pytest.mark.parametrize("mode", [TURNS, CONCURRENT])
    def test_says_why(self, lanes, text, mode):
        verdict = find_verdict(snapshot(*lanes, mode=mode))
        assert verdict.text == text
        assert (verdict.winner, verdict.ratio, verdict.interval, verdict.ranking) == (None, None, None, ())

    def test_counts_the_pairs_that_there_are(self):
        verdict = find_verdict(snapshot(lane("cpu", [100.0] * 3), lane("gpu:0", [300.0] * 4)))
        assert (verdict.text, verdict.winner) == ("no verdict yet: measured 3 of 8 rounds", None)

    def test_rounds_that_only_one_ran_in_are_no_pairs(self):
        verdict = find_verdict(snapshot(lane("cpu", [100.0] * 9), lane("gpu:0", [300.0] * 9, first=8)))
        assert verdict.text == "no verdict yet: measured 2 of 8 rounds"


class TestInterleaved:
    def test_the_winner_is_named_with_the_factor_and_its_interval(self):
        verdict = find_verdict(snapshot(lane("cpu", noisy(100)), lane("gpu:0", noisy(300, seed=2))))
        assert (verdict.winner, verdict.note) == ("gpu:0", "")
        assert verdict.interval.low < 3 < verdict.interval.high
        assert verdict.ratio == verdict.interval.value == pytest.approx(3, rel=0.03)
        assert verdict.text == "gpu:0 is 3.0× faster than cpu (95 % CI 2.9 to 3.1, always valid, 12 pairs)"

    def test_the_order_of_the_lanes_does_not_matter(self):
        slow, fast = lane("cpu", noisy(100)), lane("gpu:0", noisy(300, seed=2))
        assert find_verdict(snapshot(slow, fast)) == find_verdict(snapshot(fast, slow))

    def test_the_title_is_that_in_effect_and_the_winner_is_a_name(self):
        spec = LaneSpec("cpu", {"prefetch": "off"}, name="cpu prefetch=off", apart=("prefetch",))
        fast = replace(lane("cpu", [300.0] * 9), spec=spec, settings={"prefetch": 2})
        verdict = find_verdict(snapshot(fast, lane("cpu", [100.0] * 9)))
        assert verdict.text.startswith("cpu prefetch=2 is ")
        assert verdict.winner == "cpu prefetch=off"

    def test_a_difference_within_the_interval_is_too_close_to_call(self):
        lanes = lane("cpu", noisy(100, scatter=0.1)), lane("gpu:0", noisy(100, scatter=0.1, seed=2))
        verdict = find_verdict(snapshot(*lanes))
        assert verdict.winner is None
        assert verdict.text.startswith("not known yet: ")
        assert verdict.interval.low < 1 < verdict.interval.high
        assert find_verdict(snapshot(lane("cpu", [100.0] * 9), lane("gpu:0", [100.0] * 9))).winner is None

    def test_every_lane_but_the_slowest_is_ranked_against_it(self):
        lanes = lane("cpu", noisy(100)), lane("gpu:1", noisy(400, seed=2)), lane("gpu:0", noisy(200, seed=3))
        verdict = find_verdict(snapshot(*lanes))
        assert [rank.lane for rank in verdict.ranking] == ["gpu:1", "gpu:0"]
        assert [rank.ratio.value for rank in verdict.ranking] == pytest.approx([4, 2], rel=0.03)
        assert (verdict.winner, verdict.ratio) == ("gpu:1", verdict.ranking[0].ratio.value)

    def test_the_two_fastest_must_be_told_apart_for_a_winner(self):
        lanes = lane("cpu", noisy(100)), lane("gpu:1", noisy(400, seed=2)), lane("gpu:0", noisy(400, seed=3))
        verdict = find_verdict(snapshot(*lanes))
        assert verdict.winner is None
        assert "not known yet: gpu:" in verdict.text and "over gpu:" in verdict.text

    def test_a_disturbed_slice_does_not_turn_the_verdict_round(self):
        fast, slow = [105.0] * 11 + [1.0], [100.0] * 12
        assert sum(fast) < sum(slow)
        verdict = find_verdict(snapshot(lane("cpu", fast), lane("gpu:0", slow)))
        assert (verdict.winner, verdict.ratio) == ("cpu", pytest.approx(1.05))

    def test_the_fastest_is_never_slower_than_the_one_it_is_ahead_of(self):
        alone, together = [900.0] * 30, [100.0] * 9
        verdict = find_verdict(snapshot(lane("cpu", alone + together), lane("gpu:0", [110.0] * 9, first=31)))
        assert verdict.winner != "cpu"

    def test_a_lane_that_finished_still_counts_and_one_that_failed_does_not(self):
        done = lane("cpu", noisy(100), DONE), lane("gpu:0", noisy(300, seed=2), DONE)
        assert find_verdict(snapshot(*done, lane("gpu:1", noisy(900), FAILED))).winner == "gpu:0"

    def test_a_lane_that_became_slower_is_noted(self):
        hot = [*noisy(300), *noisy(150, seed=2)]
        verdict = find_verdict(snapshot(lane("cpu", noisy(100, 24, seed=3)), lane("gpu:0", hot)))
        assert verdict.note.startswith("gpu:0 slowed by ") and verdict.note.endswith(" % during this measurement")

    @pytest.mark.parametrize(
        ("pairs", "disturbed", "noted"),
        [(20, 0, False), (20, 2, False), (20, 3, True), (8, 1, False), (8, 2, True)],
    )
    def test_more_outlying_pairs_than_one_and_a_tenth_are_noted(self, pairs, disturbed, noted):
        odd = [
            speed / 9 if number % 4 == 1 and number < 4 * disturbed else speed
            for number, speed in enumerate(noisy(300, pairs))
        ]
        verdict = find_verdict(snapshot(lane("cpu", noisy(100, pairs, seed=3)), lane("gpu:0", odd)))
        assert verdict.note == (f"{disturbed} outlying pairs: something else disturbs the lanes" if noted else "")


class TestConcurrent:
    def test_the_factor_is_that_of_the_totals_and_is_called_contended(self):
        verdict = find_verdict(snapshot(lane("cpu", [100.0, 300.0]), lane("gpu:0", [500.0]), mode=CONCURRENT))
        assert verdict.text == "gpu:0 is 2.5× faster than cpu"
        assert (verdict.winner, verdict.ratio, verdict.note) == ("gpu:0", pytest.approx(2.5), CONTENDED)
        assert (verdict.interval, verdict.ranking) == (None, ())

    def test_a_lane_that_trained_nothing_gives_no_factor(self):
        verdict = find_verdict(snapshot(lane("cpu", [0.0]), lane("gpu:0", [500.0]), mode=CONCURRENT))
        assert verdict.text == "no verdict: nothing was measured"


class TestWhatLimitsIt:
    def gpu_samples(self, *clocks: float):
        unread = ("busy_pct", "used_bytes", "total_bytes", "power_w", "power_limit_w", "temperature_c")
        missing = dict.fromkeys(unread, Missing("not read"))
        return tuple(
            GpuSample(at_ns=at, key="GPU-1", index=0, name="GPU", busy_source="", sm_clock_mhz=clock, **missing)
            for at, clock in enumerate(clocks)
        )

    @pytest.mark.parametrize(
        ("clocks", "noted"), [((2_000, 1_499, 2_000), True), ((2_000, 1_500), False), ((345,), False)]
    )
    def test_clocks_that_fall_between_slices_are_noted(self, clocks, noted):
        samples = self.gpu_samples(*clocks)
        raced = replace(
            snapshot(lane("cpu", noisy(100)), lane("gpu:0", noisy(300, seed=2))),
            gpus=samples[-1:],
            gpu_history={"GPU-1": samples},
        )
        text = "the GPU clock of gpu:0 falls between slices (1499 to 2000 MHz); a longer --slice hides it"
        assert find_verdict(raced).note == (text if noted else "")

    def test_a_disturbance_that_is_always_there_is_noted(self):
        slow = lane("cpu", noisy(100))
        slow = replace(slow, measurements=replace(slow.measurements, constant=("cgroup throttled",)))
        note = find_verdict(snapshot(slow, lane("gpu:0", noisy(300, seed=2)))).note
        assert note == "the container's CPU quota is used up most of the time; the figures include that"

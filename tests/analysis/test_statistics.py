"""The ratio's interval: known answers, and that it holds what it promises."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import mstats, t

from tfmon.analysis.statistics import (
    BETWEEN_PROCESSES_95,
    LEAST_PAIRS,
    TRIM,
    LogSpeeds,
    drift,
    gain,
    log_speeds,
    outliers,
    ratio,
    speed,
    student_95,
    trimmed,
)
from tfmon.model.lane_statistics import SliceSpeed
from tfmon.model.readings import Estimate


def slices(speeds, first: int = 1) -> list[SliceSpeed]:
    """Make long slices in rounds that count up from `first`; None skips a round."""
    return [
        SliceSpeed(number, number, round(2_000_000 * speed), 2_000_000_000_000_000)
        for number, speed in enumerate(speeds, first)
        if speed is not None
    ]


def logs(speeds, first: int = 1) -> LogSpeeds:
    return log_speeds(slices(speeds, first))


def noisy(middle: float, number: int, scatter: float = 0.02, seed: int = 1) -> list[float]:
    return list(middle * np.exp(np.random.default_rng(seed).normal(0, scatter, number)))


def test_the_quantile_of_students_t_is_that_of_scipy():
    """The figures that SciPy itself gives for 1 and 2 degrees are exact: 12.7062 and 4.3027."""
    degrees = np.array([*range(1, 80), 200, 1_199])
    ours = np.array([student_95(int(number)) for number in degrees])
    assert ours == pytest.approx(t.ppf(0.975, degrees), rel=2e-8)
    assert ours[:30] == pytest.approx(t.ppf(0.975, degrees[:30]), rel=1e-12)


class TestTrimmed:
    def test_the_mean_is_without_the_lowest_and_the_highest_fifth(self):
        assert trimmed([100.0, 1.0, 2.0, 3.0, -50.0]).value == pytest.approx(2.0)
        assert trimmed([0, 1, 2, 3, 4, 5, 6, 7, 8, 90]).value == pytest.approx(4.5)

    def test_the_interval_is_that_of_tukey_and_mclaughlin(self):
        estimate = trimmed([1.0, 2.0, 3.0, 4.0, 50.0])
        # Winsorised: 2 2 3 4 4, whose standard deviation is 1; Student's t for 2 degrees of freedom is 4.3027.
        half = 4.302653 * 1 / (0.6 * math.sqrt(5))
        assert (estimate.low, estimate.high) == (pytest.approx(3 - half), pytest.approx(3 + half))
        assert estimate.pairs == 5

    @pytest.mark.parametrize("number", [*range(5, 17), 100, 2_000])
    def test_scipy_comes_to_the_same(self, number):
        values = np.random.default_rng(number).normal(0.7, 0.1, number)
        estimate = trimmed(values.tolist())
        low, high = mstats.trimmed_mean_ci(values, limits=(TRIM, TRIM), alpha=0.05)
        assert (estimate.low, estimate.high) == (pytest.approx(low), pytest.approx(high))
        assert estimate.value == pytest.approx(mstats.trimmed_mean(values, limits=(TRIM, TRIM)))

    def test_too_few_values_have_no_interval(self):
        assert trimmed([1.0] * (LEAST_PAIRS - 1)) is None
        assert trimmed([2.0] * LEAST_PAIRS) == Estimate(2.0, 2.0, 2.0, LEAST_PAIRS)

    @pytest.mark.parametrize("number", [5, 8, 20])
    def test_95_of_100_intervals_hold_the_truth(self, number):
        random = np.random.default_rng(number)
        series = [trimmed(random.normal(0.7, 0.1, number)) for _ in range(800)]
        covered = sum(not estimate.clear_of(0.7) for estimate in series) / len(series)
        assert 0.92 <= covered <= 0.98

    def test_the_interval_holds_when_one_in_ten_values_is_disturbed(self):
        random = np.random.default_rng(3)
        held = 0
        for _ in range(400):
            values = random.normal(0, 0.1, 30) + (random.random(30) < 0.1) * random.normal(0, 3, 30)
            held += not trimmed(values).clear_of(0)
        assert 0.92 <= held / 400 <= 0.99


class TestRatio:
    def test_the_interval_is_never_narrower_than_what_two_processes_differ_by(self):
        estimate = ratio(logs([300.0] * 6), logs([100.0] * 6))
        assert math.log(estimate.high / 3) == pytest.approx(BETWEEN_PROCESSES_95)
        assert math.log(3 / estimate.low) == pytest.approx(BETWEEN_PROCESSES_95)

    def test_one_wide_for_other_reasons_is_hardly_widened(self):
        fast, slow = logs(noisy(300, 12, scatter=0.2)), logs(noisy(100, 12, scatter=0.2, seed=2))
        bare, estimate = trimmed([fast[one] - slow[one] for one in fast]), ratio(fast, slow)
        assert math.log(estimate.high) - bare.value == pytest.approx(bare.high - bare.value, rel=0.02)

    def test_the_other_way_round_it_is_the_inverse(self):
        fast, slow = logs(noisy(300, 12)), logs(noisy(100, 12, seed=2))
        forth, back = ratio(fast, slow), ratio(slow, fast)
        assert forth.low < 3 < forth.high
        assert (back.value, back.low, back.high) == (
            pytest.approx(1 / forth.value),
            pytest.approx(1 / forth.high),
            pytest.approx(1 / forth.low),
        )

    def test_what_drifts_slowly_cancels_in_the_pairs(self):
        heat = [1.0 - 0.05 * number for number in range(10)]
        estimate = ratio(logs([300 * factor for factor in heat]), logs([100 * factor for factor in heat]))
        assert (estimate.low, estimate.high) == (pytest.approx(3, rel=0.02), pytest.approx(3, rel=0.02))

    def test_only_rounds_that_both_ran_in_are_pairs(self):
        first = logs([900.0, *[200.0] * 5, None, 200.0], first=1)
        second = logs([100.0] * 7, first=2)
        estimate = ratio(first, second)
        assert (estimate.value, estimate.pairs) == (pytest.approx(2), 6)

    def test_without_five_rounds_in_common_there_is_no_ratio(self):
        assert ratio(logs([2.0] * 9, first=1), logs([1.0] * 9, first=6)) is None
        assert ratio(logs([2.0] * 9, first=1), logs([1.0] * 9, first=5)) is not None
        assert ratio({}, {}) is None

    def test_a_slice_in_which_nothing_was_trained_is_no_pair(self):
        assert ratio(logs([0.0] + [2.0] * 5), logs([1.0] * 6)).pairs == 5
        assert ratio(logs([2.0] * 6), logs([1.0] * 5 + [0.0])).pairs == 5

    def test_one_disturbed_pair_hardly_moves_it(self):
        fast, slow = noisy(300, 20), noisy(100, 20, seed=2)
        calm = ratio(logs(fast), logs(slow))
        disturbed = ratio(logs([3.0, *fast[1:]]), logs(slow))
        assert disturbed.value == pytest.approx(calm.value, rel=0.01)
        assert disturbed.half_width < 0.03


def pairs(before, after):
    return list(zip(slices(before, first=1), slices(after, first=50), strict=True))


class TestGain:
    """One lane against itself under other settings."""

    def test_slices_are_paired_in_their_order_whatever_their_rounds(self):
        estimate = gain(pairs([100.0] * 6, [130.0] * 6))
        assert (estimate.value, estimate.low, estimate.high, estimate.pairs) == (*(pytest.approx(1.3),) * 3, 6)

    def test_needs_five_pairs(self):
        assert gain(pairs([100.0] * 4, [130.0] * 4)) is None

    def test_a_slice_in_which_nothing_was_trained_is_no_pair(self):
        assert gain(pairs([0.0] + [100.0] * 5, [130.0] * 6)).pairs == 5

    def test_two_processes_differ_by_more_than_their_slices_do(self):
        between = gain(pairs([100.0] * 6, [130.0] * 6), one_process=False)
        assert between.value == pytest.approx(1.3)
        assert math.log(between.high / between.value) == pytest.approx(BETWEEN_PROCESSES_95)


def test_the_speed_needs_five_slices_in_which_something_was_trained():
    estimate = speed(logs([100.0] * 5))
    assert (estimate.value, estimate.pairs) == (pytest.approx(100), 5)
    assert speed(logs([100.0] * 4 + [0.0])) is None


class TestDrift:
    def test_a_clear_change_is_told(self):
        assert drift(logs([*noisy(100, 12), *noisy(80, 12, seed=2)])) == pytest.approx(0.8, rel=0.03)

    def test_a_change_of_a_few_percent_is_not_worth_a_word(self):
        assert drift(logs([*noisy(100, 12, 0.001), *noisy(97, 12, 0.001, seed=2)])) is None

    def test_a_change_within_the_scatter_is_not_told(self):
        assert drift(logs([*noisy(100, 6, 0.5), *noisy(80, 12, 0.5, seed=2)])) is None

    def test_needs_three_times_five_slices(self):
        assert drift(logs([100.0] * 7 + [50.0] * 7)) is None
        assert drift(logs([100.0] * 7 + [50.0] * 8)) == pytest.approx(0.5)


class TestOutliers:
    def test_pairs_far_off_the_others_are_counted(self):
        fast, slow = noisy(300, 20), noisy(100, 20, seed=2)
        assert outliers(logs(fast), logs(slow)) == 0
        assert outliers(logs([30.0, 3000.0, *fast[2:]]), logs(slow)) == 2

    def test_too_few_pairs_or_equal_ones_have_none(self):
        assert outliers(logs([1.0, 1.0, 1.0, 90.0]), logs([1.0] * 4)) == 0
        assert outliers(logs([2.0] * 8), logs([1.0] * 8)) == 0

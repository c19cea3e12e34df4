"""The ratio's interval: known answers, and its coverage."""

import math

import numpy as np
import pytest
from support.verdicts import noisy

from tfmon.analysis.intervals import TRIM, trimmed, trimmed_in_time
from tfmon.analysis.statistics import between_processes, drift, outliers, pairs_of
from tfmon.model.race import BetweenProcesses
from tfmon.model.windows import SliceSpeed


def slices(speeds, first: int = 1) -> list[SliceSpeed]:
    """Make long slices in rounds that count up from `first`. `None` skips a round."""
    return [
        SliceSpeed(number, number, round(2_000_000 * speed), 2_000_000_000_000_000)
        for number, speed in enumerate(speeds, first)
        if speed is not None
    ]


@pytest.mark.parametrize("number", [5, 6, 9, 10, 14, 2_000])
def test_the_trimmed_mean_is_that_of_scipy(number):
    from scipy.stats import mstats

    values = np.random.default_rng(number).normal(0.7, 0.1, number)
    estimate = trimmed(values.tolist()).estimate()
    low, high = mstats.trimmed_mean_ci(values, limits=(TRIM, TRIM), alpha=0.05)
    assert np.log([estimate.low, estimate.high]) == pytest.approx([low, high])
    assert np.log(estimate.value) == pytest.approx(mstats.trimmed_mean(values, limits=(TRIM, TRIM)))


def test_slow_changes_widen_the_interval_and_a_quiet_machine_pays_little_for_it():
    """Neighbours come and go: slices that follow each other are alike."""
    rng, missed, missed_before, wider = np.random.default_rng(3), 0, 0, []
    for _ in range(300):
        state, values = rng.normal(0, 0.05), []
        for _ in range(40):
            state = 0.85 * state + rng.normal(0, 0.05 * math.sqrt(1 - 0.85**2))
            values.append(state + rng.normal(0, 0.02))
        missed += abs(trimmed_in_time(values).value) > trimmed_in_time(values).reach()
        missed_before += abs(trimmed(values).value) > trimmed(values).reach()
        quiet = list(rng.normal(0, 0.02, 40))
        wider.append(trimmed_in_time(quiet).reach() / trimmed(quiet).reach())
    assert missed <= 0.2 * 300 < 0.45 * 300 <= missed_before
    assert sum(wider) / len(wider) < 1.5


def test_a_slice_in_which_nothing_was_trained_is_no_pair():
    assert len(pairs_of(slices([0.0] + [2.0] * 5), slices([1.0] * 6))) == 5
    assert len(pairs_of(slices([2.0] * 6), slices([1.0] * 5 + [0.0]))) == 5


class TestBetweenProcesses:
    def test_the_scatter_of_the_pairs_is_taken_off_with_a_degree_for_each_process(self):
        scatter = [-0.02, -0.01, 0.0, 0.01, 0.02]
        found = between_processes([sign * 0.1 + one for sign in (-1, 1) for one in scatter], [1] * 5 + [2] * 5)
        within = trimmed(2 * scatter, estimated=1).error
        assert found.learnt.squares == pytest.approx(2 * 0.1**2 - within**2 * 10 / 5, rel=1e-9)

    def test_earlier_races_count_for_at_most_ten_degrees(self):
        found = between_processes([0.0] * 9, [1] * 9, BetweenProcesses(100 * 0.03**2, 100, 20))
        assert found.degrees == 14
        assert found.sd == pytest.approx(math.sqrt((4 * 0.008**2 + 10 * 0.03**2) / 14))


def test_a_drift_is_told_beyond_a_few_percent_and_beyond_the_scatter():
    assert drift(np.log([*noisy(100, 12), *noisy(80, 12, seed=2)])) == pytest.approx(0.8, rel=0.03)
    assert drift(np.log([*noisy(100, 12, 0.001), *noisy(97, 12, 0.001, seed=2)])) is None
    assert drift(np.log([*noisy(100, 6, 0.5), *noisy(80, 12, 0.5, seed=2)])) is None


def test_too_few_pairs_or_equal_ones_have_no_outliers():
    assert sum(outliers(pairs_of(slices([1.0, 1.0, 1.0, 90.0]), slices([1.0] * 4)))) == 0
    assert sum(outliers(pairs_of(slices([2.0] * 8), slices([1.0] * 8)))) == 0

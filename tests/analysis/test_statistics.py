"""The ratio's interval: known answers, and that it holds what it promises."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import mstats
from support.verdicts import noisy

from tfmon.analysis.intervals import (
    LEAST_PAIRS,
    TRIM,
    WIDEST,
    Center,
    Looks,
    always_valid,
    trimmed,
    trimmed_in_time,
)
from tfmon.analysis.statistics import (
    LogSpeed,
    LogSpeeds,
    Throughput,
    between_processes,
    compare,
    drift,
    gain,
    log_speeds,
    outliers,
    ratio,
)
from tfmon.model.lane_statistics import SliceSpeed
from tfmon.model.race import BetweenProcesses
from tfmon.model.readings import ALWAYS_VALID, Estimate

ONE_PROCESS = between_processes((), ()).reach()
"""Half the interval that is left after any number of pairs of one process of each lane."""


def slices(speeds, first: int = 1) -> list[SliceSpeed]:
    """Make long slices in rounds that count up from `first`; None skips a round."""
    return [
        SliceSpeed(number, number, round(2_000_000 * speed), 2_000_000_000_000_000)
        for number, speed in enumerate(speeds, first)
        if speed is not None
    ]


def logs(speeds, first: int = 1) -> LogSpeeds:
    return log_speeds(slices(speeds, first))


class TestTrimmed:
    @pytest.mark.parametrize("number", [*range(5, 17), 100, 2_000])
    def test_scipy_comes_to_the_same(self, number):
        values = np.random.default_rng(number).normal(0.7, 0.1, number)
        estimate = trimmed(values.tolist()).estimate()
        low, high = mstats.trimmed_mean_ci(values, limits=(TRIM, TRIM), alpha=0.05)
        assert (estimate.low, estimate.high) == (pytest.approx(low), pytest.approx(high))
        assert estimate.value == pytest.approx(mstats.trimmed_mean(values, limits=(TRIM, TRIM)))

    def test_too_few_values_have_no_interval(self):
        assert trimmed([1.0] * (LEAST_PAIRS - 1)) is None
        assert trimmed([2.0] * LEAST_PAIRS).estimate() == Estimate(2.0, 2.0, 2.0, LEAST_PAIRS)

    def test_an_interval_that_spans_everything_is_none(self):
        errors = Looks().errors(20, 11)
        assert Center(0.0, 0.99 * WIDEST / errors, 11, 20).estimate() is not None
        assert Center(0.0, 1.01 * WIDEST / errors, 11, 20).estimate() is None

    def test_every_figure_that_is_estimated_besides_widens_the_interval(self):
        values = noisy(1, 20)
        bare, less = trimmed(values), trimmed(values, estimated=1)
        assert less.error == pytest.approx(bare.error * math.sqrt(19 / 18))
        assert less.reach(Looks(ALWAYS_VALID)) == pytest.approx(always_valid(19) * less.error)


class TestTrimmedInTime:
    def test_slow_changes_widen_the_interval_and_a_quiet_machine_pays_little_for_it(self):
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


class TestRatio:
    def test_the_interval_is_never_narrower_than_what_two_processes_differ_by(self):
        estimate = ratio(logs([300.0] * 6), logs([100.0] * 6))
        assert math.log(estimate.high / 3) == pytest.approx(ONE_PROCESS)
        assert math.log(3 / estimate.low) == pytest.approx(ONE_PROCESS)

    def test_the_other_way_round_it_is_the_inverse(self):
        fast, slow = logs(noisy(300, 12)), logs(noisy(100, 12, seed=2))
        forth, back = ratio(fast, slow), ratio(slow, fast)
        assert forth.low < 3 < forth.high
        assert (back.value, back.low, back.high) == (
            pytest.approx(1 / forth.value),
            pytest.approx(1 / forth.high),
            pytest.approx(1 / forth.low),
        )

    def test_only_rounds_that_both_ran_in_are_pairs(self):
        first = logs([900.0, *[200.0] * 5, None, 200.0], first=1)
        second = logs([100.0] * 7, first=2)
        estimate = ratio(first, second)
        assert (estimate.value, estimate.pairs) == (pytest.approx(2), 6)

    def test_without_two_rounds_in_common_there_is_no_ratio(self):
        assert ratio(logs([2.0] * 9, first=1), logs([1.0] * 9, first=9)) is None
        assert ratio(logs([2.0] * 9, first=1), logs([1.0] * 9, first=8)) is not None
        assert ratio({}, {}) is None

    def test_a_slice_in_which_nothing_was_trained_is_no_pair(self):
        assert ratio(logs([0.0] + [2.0] * 5), logs([1.0] * 6)).pairs == 5
        assert ratio(logs([2.0] * 6), logs([1.0] * 5 + [0.0])).pairs == 5


def in_order(ratios, first_leads, effect: float = 0.0) -> tuple[LogSpeeds, LogSpeeds]:
    """Return two lanes with these ratios, each larger by an effect where the first lane's slice comes first."""
    first, second = {}, {}
    for number, (value, leads) in enumerate(zip(ratios, first_leads, strict=True)):
        log = math.log(value) + (effect if leads else -effect)
        first[number] = LogSpeed(log, 2 * number + (not leads), 1)
        second[number] = LogSpeed(0.0, 2 * number + leads, 1)
    return first, second


class TestOrder:
    """Which lane came first."""

    def test_it_disappears_also_where_one_order_is_rarer(self):
        orders = [number % 3 == 0 for number in range(30)]
        found = compare(*in_order([1.1] * 30, orders, effect=0.05))
        assert found.center.value == pytest.approx(math.log(1.1))
        assert found.center.error == pytest.approx(0, abs=1e-12)

    def test_what_is_estimated_costs_a_degree_of_freedom(self):
        one = compare(*in_order(noisy(1, 20), [True] * 20)).center
        both = compare(*in_order(noisy(1, 20), [bool(number % 2) for number in range(20)])).center
        assert (one.degrees, both.degrees) == (11, 10)


class TestBetweenProcesses:
    """What equal processes differ by."""

    def test_one_process_is_supposed_to_be_as_elsewhere(self):
        found = between_processes([0.0] * 9, [1] * 9)
        assert (found.sd, found.degrees, found.processes, found.learnt) == (0.008, 4, 1, None)

    def test_the_scatter_of_the_pairs_is_taken_off_with_a_degree_for_each_process(self):
        scatter = [-0.02, -0.01, 0.0, 0.01, 0.02]
        found = between_processes([sign * 0.1 + one for sign in (-1, 1) for one in scatter], [1] * 5 + [2] * 5)
        within = trimmed(2 * scatter, estimated=1).error
        assert found.learnt.squares == pytest.approx(2 * 0.1**2 - within**2 * 10 / 5, rel=1e-9)

    def test_earlier_races_count_for_at_most_ten_degrees(self):
        found = between_processes([0.0] * 9, [1] * 9, BetweenProcesses(100 * 0.03**2, 100, 20))
        assert found.degrees == 14
        assert found.sd == pytest.approx(math.sqrt((4 * 0.008**2 + 10 * 0.03**2) / 14))

    def test_it_never_becomes_nothing(self):
        found = between_processes([0.0] * 9, [1] * 9, BetweenProcesses(-1.0, 10, 20))
        assert found.sd == pytest.approx(math.sqrt(2 * 0.008**2 / 14))

    def test_fresh_processes_narrow_the_interval_by_their_share_of_the_pairs(self):
        assert between_processes([0.0] * 30, [1] * 15 + [2] * 15).processes == 2
        assert between_processes([0.0] * 30, [1] * 27 + [2] * 3).processes == pytest.approx(1 / (0.81 + 0.01))

    def test_a_process_of_one_lane_that_met_two_of_the_other_is_one(self):
        first, second = logs(noisy(300, 20)), logs(noisy(100, 20, seed=2))
        renewed = {number: one._replace(process=number // 11) for number, one in first.items()}
        assert compare(renewed, second).between.processes == 1
        both = {number: one._replace(process=number // 11) for number, one in second.items()}
        assert compare(renewed, both).between.processes > 1.9


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
        assert math.log(between.high / between.value) == pytest.approx(ONE_PROCESS)


def test_the_throughput_of_grown_slices_is_the_same_with_what_is_known_before():
    grown = tuple(slices([100.0 + 7 * (place % 5) for place in range(40)]))
    short = replace(grown[30], examples=1)
    for before in (grown[:5], grown[:30], (*grown[:30], short), grown[3:20], grown):
        assert Throughput.of(grown, Throughput.of(before)) == Throughput.of(grown)


def test_the_speed_needs_five_slices_in_which_something_was_trained():
    estimate = Throughput.of(tuple(slices([100.0] * 5))).speed()
    assert (estimate.value, estimate.pairs) == (pytest.approx(100), 5)
    assert Throughput.of(tuple(slices([100.0] * 4 + [0.0]))).speed() is None


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
        assert sum(outliers(logs(fast), logs(slow))) == 0
        assert sum(outliers(logs([30.0, 3000.0, *fast[2:]]), logs(slow))) == 2

    def test_too_few_pairs_or_equal_ones_have_none(self):
        assert sum(outliers(logs([1.0, 1.0, 1.0, 90.0]), logs([1.0] * 4))) == 0
        assert sum(outliers(logs([2.0] * 8), logs([1.0] * 8))) == 0

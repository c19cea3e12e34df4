"""Quantiles from geometric bins lie within 0.55 % of the true ones."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfmon.model.lane_statistics import add, bin_of, count, middle_ns, quantile_ns

DURATIONS = st.lists(st.integers(1, 10**13), min_size=1, max_size=200)
FRACTIONS = st.sampled_from(["0", "0.05", "0.5", "0.95", "0.99", "1"])


def nearest_rank(durations, fraction: str) -> int:
    rank = max(1, math.ceil(Fraction(fraction) * len(durations)))
    return sorted(durations)[rank - 1]


@settings(deadline=None)
@given(DURATIONS, FRACTIONS)
def test_a_quantile_is_within_0_55_percent_of_the_nearest_rank(durations, fraction):
    estimate = quantile_ns(count(durations), float(fraction))
    assert estimate == pytest.approx(nearest_rank(durations, fraction), rel=0.0055)


@settings(deadline=None)
@given(DURATIONS, DURATIONS)
def test_adding_counts_both_and_changes_neither(left, right):
    first, second = count(left), count(right)
    before = dict(first), dict(second)
    assert add(first, second) == count(left + right)
    assert (first, second) == before


@settings(deadline=None)
@given(st.integers(0, 3000))
def test_the_middle_of_a_bin_lies_in_it(index):
    assert bin_of(middle_ns(index)) == index


def test_a_factor_of_two_is_64_bins():
    assert [bin_of(2**power) for power in (0, 1, 10, 20)] == [0, 64, 640, 1280]


def test_up_to_one_nanosecond_is_the_first_bin():
    assert bin_of(0) == bin_of(-5) == bin_of(1) == 0


def test_every_duration_is_counted():
    assert sum(count([3, 3, 5, 1_000_000]).values()) == 4


@pytest.mark.parametrize("bins", [{}, {5: 0}])
def test_nothing_counted_has_no_quantile(bins):
    assert quantile_ns(bins, 0.5) is None

"""The difference of two groups of races: how often its interval holds the truth, and what bad races do to it."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tfmon.analysis.intervals import shift


def bad_ones(rng: random.Random) -> float:
    """Every seventh race is up to 30 % slower."""
    return rng.gauss(0, 0.005) - (rng.random() < 1 / 7) * rng.uniform(0, 0.3)


def normal(sd: float) -> Callable[[random.Random], float]:
    return lambda rng: rng.gauss(0, sd)


@pytest.mark.parametrize("count", [3, 5])
@pytest.mark.parametrize("race", [normal(0.003), normal(0.01), normal(0.08), bad_ones])
def test_the_interval_holds_the_truth(count, race):
    rng = random.Random(1)
    missed = 0
    for _ in range(200):
        found = shift(*([race(rng) for _ in range(count)] for _ in range(2)), 0.05)
        missed += not found.low <= 0 <= found.high
    assert missed <= 0.1 * 200


def test_two_bad_races_of_five_neither_move_it_far_nor_hide_a_difference():
    good, slower = [0.0, 0.004, -0.003, 0.005, -0.004], [-0.2, -0.203, -0.205, -0.9, -0.6]
    found = shift(good, slower, 0.05)
    assert found.value == pytest.approx(-0.203, abs=0.01) and -0.25 < found.low < found.high < -0.16


def test_more_races_and_a_larger_error_make_it_narrower():
    races = [0.01, -0.01, 0.004, -0.006]
    few, many, bold = shift(races, races, 0.05), shift(races * 4, races * 4, 0.05), shift(races, races, 0.2)
    assert few.value == pytest.approx(0, abs=1e-9)
    assert many.high < 0.6 * few.high and bold.high < 0.8 * few.high


def test_exchanged_groups_give_the_opposite():
    one, other = [0.1, 0.12, 0.4], [1.0, 1.03, 1.01]
    there, back = shift(one, other, 0.05), shift(other, one, 0.05)
    assert (there.value, there.low, there.high) == pytest.approx((-back.value, -back.high, -back.low), abs=1e-3)

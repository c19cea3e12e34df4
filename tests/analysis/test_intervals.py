"""How wide an interval is for how it is used, and what two groups of races differ by."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from scipy import integrate
from scipy.stats import nct, norm, t

from benchmarks.coverage import SHORT, Row, simulate
from tfmon.analysis.intervals import EFFECT_VARIANCE, NONE, Looks, always_valid, shift, spending, student
from tfmon.model.readings import ALWAYS_VALID, FIXED, SPENDING


@pytest.mark.parametrize("error", [0.5, 0.05, 0.01, 1e-4, 1e-8, 1e-12, 1e-20])
def test_the_quantile_of_students_t_is_that_of_scipy(error):
    for degrees in (1, 2, 3, 4.5, 7, 11, 29, 30, 80, 200, 1_199):
        theirs = t.isf(error / 2, degrees)
        assert student(error, degrees) == (pytest.approx(theirs, rel=1e-10) if theirs < 1e9 else NONE)


@pytest.mark.parametrize("pairs", [8, 14, 60])
def test_an_always_valid_interval_ends_where_the_bayes_factor_of_a_normal_prior_is_20(pairs):
    """The density of t under a normal prior of the effect, integrated numerically, over that without an effect."""
    found, sd = always_valid(pairs), math.sqrt(EFFECT_VARIANCE)

    def weighed(effect: float) -> float:
        return nct.pdf(found, pairs - 1, effect * math.sqrt(pairs)) * norm.pdf(effect, 0, sd)

    mixed, _ = integrate.quad(weighed, -8 * sd, 8 * sd, limit=200)
    assert mixed / t.pdf(found, pairs - 1) == pytest.approx(20, rel=1e-4)


def test_an_always_valid_interval_takes_eight_pairs_and_more_where_one_of_many_is_chosen():
    assert (always_valid(7), always_valid(8)) == (NONE, pytest.approx(10.77, abs=0.01))
    assert always_valid(8, Looks(ALWAYS_VALID, choices=5).error) == NONE
    assert Looks(ALWAYS_VALID, choices=5).errors(20, 11) > always_valid(20)


def test_the_first_pairs_spend_a_twentieth_of_the_error_more_and_half_of_what_is_left_each():
    reaches = [Looks(ALWAYS_VALID).errors(pairs, pairs - 1) for pairs in range(1, 8)]
    assert reaches[:2] == [NONE, NONE]
    spent = [2 * t.sf(reach, pairs - 1) for pairs, reach in enumerate(reaches[2:], 3)]
    assert spent == pytest.approx([0.0025 / 2**number for number in range(1, 6)])
    assert Looks(SPENDING, 0.0).errors(3, 2) == pytest.approx(t.isf(0.000125, 2), rel=1e-3)


@pytest.mark.parametrize("error", [0.05, 0.01])
def test_a_brownian_motion_leaves_the_spending_interval_in_its_share_of_cases(error):
    """The exact probability, by the series of the reflection principle; at the end it is the known 2.241."""
    reach = spending(1.0, 1e9, error)
    inside = sum(
        (-1) ** k * (norm.cdf((2 * k + 1) * reach) - norm.cdf((2 * k - 1) * reach)) for k in range(-9, 10)
    )
    assert 1 - inside == pytest.approx(error, rel=2e-3)
    assert spending(0.25, 1e9, error) == pytest.approx(2 * reach, rel=1e-6)
    assert spending(0.0, 10) == NONE


def test_one_look_is_narrowest_and_a_known_length_lies_between():
    fixed, known, always = (Looks(kind, 1.0).errors(100, 59) for kind in (FIXED, SPENDING, ALWAYS_VALID))
    assert fixed == pytest.approx(2.001, abs=1e-3)
    assert fixed < known < always
    assert known == spending(1.0, 59, 0.04), "the other 1 % is spent early"
    assert Looks(SPENDING, 0.01).errors(100, 59) == always_valid(100, 0.01), "a large difference shows early"


# ---------------------------------------------------------------- what they hold, simulated


RACES = 60


@pytest.fixture(scope="module")
def short():
    """Races of 30 s of equal lanes, under synthetic noise of moderate strength."""
    return {kind: one for (kind, _), one in simulate(Row("synthetic"), RACES, SHORT).items()}


def test_a_screen_names_hardly_a_false_winner_at_any_moment(short):
    assert short[ALWAYS_VALID].ever <= 5
    assert short[SPENDING].ever <= 7
    assert short[FIXED].ever >= 4, "an interval for the end, looked at all the time, would"


def test_at_the_end_every_kind_covers_the_truth(short):
    for outcome in short.values():
        assert outcome.races == RACES
        assert outcome.covered >= 0.9 * RACES


def test_a_real_difference_is_found(short):
    assert short[FIXED].ten >= 0.85 * RACES
    assert short[SPENDING].ten >= 0.8 * RACES
    assert short[ALWAYS_VALID].ten >= 0.5 * RACES


def test_what_an_interval_must_hold_for_is_what_it_costs(short):
    assert short[FIXED].width < short[SPENDING].width < short[ALWAYS_VALID].width < 2 * short[FIXED].width


# ---------------- the difference of two groups of races


def normal(sd: float) -> Callable[[random.Random], float]:
    return lambda rng: rng.gauss(0, sd)


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

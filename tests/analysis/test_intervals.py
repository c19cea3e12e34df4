"""How wide an interval is for how it is used, and what two groups of races differ by."""

import math

import pytest

from tfmon.analysis.intervals import EFFECT_VARIANCE, NONE, always_valid, shift, spending, student


@pytest.mark.parametrize("error", [0.5, 0.05, 0.01, 1e-4, 1e-8, 1e-12, 1e-20])
def test_the_quantile_of_students_t_is_that_of_scipy(error):
    from scipy import stats

    for degrees in (1, 2, 3, 4.5, 7, 11, 29, 30, 80, 200, 1_199):
        theirs = stats.t.isf(error / 2, degrees)
        assert student(error, degrees) == (pytest.approx(theirs, rel=1e-10) if theirs < 1e9 else NONE)


@pytest.mark.parametrize("pairs", [8, 14, 60])
def test_an_always_valid_interval_ends_where_the_bayes_factor_of_a_normal_prior_is_20(pairs):
    """The density of t under a normal prior of the effect, integrated numerically, over that without an effect."""
    from scipy import integrate, stats

    found, sd = always_valid(pairs), math.sqrt(EFFECT_VARIANCE)

    def weighed(effect: float) -> float:
        return stats.nct.pdf(found, pairs - 1, effect * math.sqrt(pairs)) * stats.norm.pdf(effect, 0, sd)

    mixed, _ = integrate.quad(weighed, -8 * sd, 8 * sd, limit=200)
    assert mixed / stats.t.pdf(found, pairs - 1) == pytest.approx(20, rel=1e-4)


@pytest.mark.parametrize("error", [0.05, 0.01])
def test_a_brownian_motion_leaves_the_spending_interval_in_its_share_of_cases(error):
    """The exact probability, by the series of the reflection principle; at the end it is the known 2.241."""
    from scipy.stats import norm

    reach, cdf = spending(1.0, 1e9, error), norm.cdf
    inside = sum((-1) ** k * (cdf((2 * k + 1) * reach) - cdf((2 * k - 1) * reach)) for k in range(-9, 10))
    assert 1 - inside == pytest.approx(error, rel=2e-3)
    assert spending(0.25, 1e9, error) == pytest.approx(2 * reach, rel=1e-6)
    assert spending(0.0, 10) == NONE


def test_two_bad_races_of_five_neither_move_it_far_nor_hide_a_difference():
    good, slower = [0.0, 0.004, -0.003, 0.005, -0.004], [-0.2, -0.203, -0.205, -0.9, -0.6]
    value, low, high = shift(good, slower, 0.05)
    assert value == pytest.approx(-0.203, abs=0.01) and -0.25 < low < high < -0.16
    assert shift(slower, good, 0.05) == pytest.approx((-value, -high, -low), abs=1e-3), "exchanged"

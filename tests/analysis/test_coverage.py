"""That the intervals hold what they promise, on simulated races: a short form of `make coverage`.

Bounds are four standard errors from what 2,000 races gave; the seeds are fixed.
"""

from __future__ import annotations

import pytest
from benchmarks.coverage import LONG, SHORT, Row, noises, simulate

from tfmon.model.readings import ALWAYS_VALID, FIXED, SPENDING

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


@pytest.mark.parametrize("noise", [name for name in noises() if name != "synthetic"])
def test_heavy_and_recorded_noise_is_told_from_a_difference(noise):
    for (kind, _), outcome in simulate(Row(noise), 40, SHORT).items():
        assert outcome.covered >= 0.85 * 40
        assert kind == FIXED or outcome.ever <= 6


def test_fresh_processes_find_the_same_and_small_differences_within_three_minutes():
    found = simulate(Row("synthetic", fresh=True), 12)
    for kind in (ALWAYS_VALID, SPENDING, FIXED):
        assert found[kind, LONG].same + found[kind, LONG].three >= 14

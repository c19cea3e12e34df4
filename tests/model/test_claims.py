"""What a measured ratio says about a claim."""

from __future__ import annotations

import pytest

from tfmon.model.claims import Claim, judge
from tfmon.model.readings import Estimate


def claim(**fields) -> Claim:
    return Claim("an-id", "an article", "says so", "cpu,graph=on", "cpu,graph=off", **fields)


def estimate(low: float, high: float) -> Estimate:
    return Estimate((low + high) / 2, low, high, 12)


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [(1.01, 1.2, "supported"), (0.8, 0.99, "contradicted"), (0.9, 1.1, "too close to call")],
)
def test_faster_needs_an_interval_above_one(low, high, outcome):
    assert judge(claim(), estimate(low, high)) == outcome


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [(3.1, 3.5, "supported"), (1.5, 2.9, "contradicted"), (2.5, 3.5, "too close to call")],
)
def test_at_least_needs_an_interval_above_it(low, high, outcome):
    assert judge(claim(at_least=3), estimate(low, high)) == outcome


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (0.95, 1.05, "supported"),
        (1.15, 1.3, "contradicted"),
        (0.7, 0.85, "contradicted"),
        (0.95, 1.2, "too close to call"),
    ],
)
def test_at_most_holds_in_both_directions(low, high, outcome):
    assert judge(claim(at_most=1.1), estimate(low, high)) == outcome

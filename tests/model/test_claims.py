"""Claims are judged by the interval of a measured ratio."""

import pytest

from tfmon.model.race import Claim, judge
from tfmon.model.readings import Estimate


@pytest.mark.parametrize(
    ("low", "high", "outcome", "expected"),
    [
        (1.01, 1.2, "supported", {}),
        (0.8, 0.99, "contradicted", {}),
        (2.5, 3.5, "too close to call", {"at_least": 3}),
        # "At most" holds in both directions.
        (0.95, 1.05, "supported", {"at_most": 1.1}),
        (0.7, 0.85, "contradicted", {"at_most": 1.1}),
        (0.95, 1.2, "too close to call", {"at_most": 1.1}),
    ],
)
def test_a_claim_is_judged_by_the_whole_interval(low, high, outcome, expected):
    claim = Claim("an-id", "an article", "says so", "cpu,graph=on", "cpu,graph=off", **expected)
    assert judge(claim, Estimate((low + high) / 2, low, high, 12)) == outcome

"""The claims of scenarios, on lanes whose speed follows a formula: outcomes, lengths, and repeated starts."""

from dataclasses import replace

import pytest
from support.sweeps import SimulatedStation

from tfmon.model.race import Claim
from tfmon.model.readings import SPENDING
from tfmon.series import claims as claims_module
from tfmon.series.claims import LONGEST_S, SHORTEST_S, ClaimPolicy, length_of
from tfmon.series.engine import Series

from .conftest import ended

CLAIM = Claim("faster", first="cpu", second="cpu,graph=off", at_least=1.2)


class Lanes(SimulatedStation):
    """A place at which the first lane of the claim with a number is as many times as fast."""

    def __init__(self, *factors: float, **more) -> None:
        super().__init__(speed=lambda own: 1_000.0 * own.get("factor", 1.0), **more)
        self.factors = factors

    def begin(self, attempt):
        return super().begin(replace(attempt, settings={"factor": self.factors[attempt.number]}))


def measured(station: Lanes, policy: ClaimPolicy):
    series = Series(policy.begin(), policy, [station], lambda step: None)
    series.start()
    assert ended(series)
    return series.state


def test_each_claim_gets_its_outcome_from_one_race_that_ends_once_it_is_decided():
    station = Lanes(2.0, 0.9, 1.2, pause_s=0.002)
    state = measured(station, ClaimPolicy([CLAIM] * 3, 0.5))
    assert [attempt.outcome for attempt in state.attempts] == ["supported", "contradicted", "too close to call"]
    assert [attempt.visits for attempt in state.attempts] == [1, 1, 1]
    assert all(attempt.gain.kind == SPENDING for attempt in state.attempts), "a race may end before its length"
    assert state.attempts[0].measured_s < 0.5 <= state.attempts[2].measured_s
    assert (state.over, state.ended) == (True, "")


def test_a_long_race_has_new_processes_from_time_to_time(monkeypatch):
    monkeypatch.setattr(claims_module, "REPEATS_FROM_S", 0.3)
    state = measured(Lanes(1.2, pause_s=0.002), ClaimPolicy([CLAIM], 0.5))
    (attempt,) = state.attempts
    assert attempt.visits > 1 and attempt.outcome == "too close to call"
    assert len({pair.visit for pair in attempt.pairs}) == attempt.visits


def test_a_lane_that_fails_makes_its_claim_untestable_and_the_others_are_measured():
    station = Lanes(2.0, 2.0, dies=lambda own, visit: "scenario: no such layout" if visit == 1 else "")
    first, second = measured(station, ClaimPolicy([CLAIM] * 2, 0.2)).attempts
    assert (first.refused, first.outcome) == ("no such layout", "")
    assert second.outcome == "supported"


@pytest.mark.parametrize(("left_s", "races", "start_s", "length_s"), [(540, 20, 5, LONGEST_S), (540, 45, 4, 8)])
def test_all_claims_fit_into_ten_minutes_if_no_length_is_given(left_s, races, start_s, length_s):
    assert length_of(left_s, races, start_s) == length_s
    assert length_of(10, races, start_s) == SHORTEST_S

"""Measures the claims of scenarios."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tfmon import units
from tfmon.api.options import Purpose, RaceOptions
from tfmon.api.run_base import run_until_over
from tfmon.api.sweep_program import ProgramStation, StationsRun
from tfmon.catalog import ScenarioInfo
from tfmon.errors import TfmonError
from tfmon.model.events import Event
from tfmon.model.race import Claim, ClaimResult, judge
from tfmon.model.series import Attempt
from tfmon.series.claims import ClaimPolicy
from tfmon.series.engine import RefusedError, Series

START_PATIENCE_S = 180.0


def verify_claims(
    infos: Sequence[ScenarioInfo], python: Path, seconds: float | None = None
) -> tuple[list[ClaimResult], str]:
    """Return the results and the interruption. Thread: the main thread."""
    claims = [(info, claim) for info in infos for claim in info.claims]
    raced = [(info, claim) for info, claim in claims if not _unraced(info, claim)]
    policy = ClaimPolicy([claim for _, claim in raced], seconds)
    run = _ClaimsRun(policy, _ClaimStation(raced, python, policy))
    interrupted = run_until_over(run)
    results = []
    attempts = iter(run.series.state.attempts)
    for info, claim in claims:
        result = _unraced(info, claim) or _result(info, claim, next(attempts))
        if result is None:
            break
        results.append(result)
    return results, interrupted


def _unraced(info: ScenarioInfo, claim: Claim) -> ClaimResult | None:
    if not claim.first:
        return ClaimResult(info.name, claim, "corrected", reason=claim.corrected)
    if claim.needs == "mac" and platform.system() != "Darwin":
        return ClaimResult(info.name, claim, "not testable here", reason="it needs a Mac")
    return None


def _result(info: ScenarioInfo, claim: Claim, attempt: Attempt) -> ClaimResult | None:
    if attempt.refused:
        return ClaimResult(info.name, claim, "not testable here", reason=attempt.refused)
    if attempt.gain is None:
        return None
    return ClaimResult(info.name, claim, judge(claim, attempt.gain), attempt.gain, claim.corrected)


class _ClaimStation(ProgramStation):
    def __init__(self, claims: Sequence[tuple[ScenarioInfo, Claim]], python: Path, policy: ClaimPolicy) -> None:
        super().__init__(RaceOptions(python=python), Purpose(watched=False))
        self.claims, self.policy = claims, policy

    def begin(self, attempt: Attempt) -> tuple[str, str]:
        info, claim = self.claims[attempt.number]
        try:
            plan = self.program.plan(info, replace(self.options, lanes=(claim.first, claim.second)))
        except TfmonError as error:
            raise RefusedError(error.message) from error
        self.policy.between = plan.race.between
        first, second = self.race(plan)
        return second, first

    @property
    def patience_s(self) -> float:
        return START_PATIENCE_S + self.policy.length_s

    def time_out(self) -> None:
        raise RefusedError("too few slices were measured; a longer --seconds may do")

    def over(self, event: Event) -> None:
        lane = self.lane(event.lane)
        if lane.trouble is not None:
            raise RefusedError(f"{lane.title} failed: {lane.trouble.message}")
        super().over(event)


class _ClaimsRun(StationsRun):
    series: Series

    def __init__(self, policy: ClaimPolicy, station: _ClaimStation) -> None:
        self._policy, self._station, self.session = policy, station, station.session
        self.stations = [station]
        self.series = Series(policy.begin(), policy, self.stations, lambda step: None)

    def line(self) -> str:
        state = self.series.state
        number = next(iter(state.running), 0)
        info, claim = self._station.claims[number]
        left = units.clock(self._policy.left_s(state))
        return f"{number + 1} of {len(state.attempts)}  {info.name}: {claim.id}   about {left} left"

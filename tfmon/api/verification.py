"""Measures the claims of scenarios, with a race for each."""

from __future__ import annotations

import itertools
import platform
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from tfmon import units
from tfmon.analysis.intervals import Looks
from tfmon.analysis.statistics import compare, pairs_of
from tfmon.api.options import FRESH_FROM_S, RaceOptions
from tfmon.api.program import Program
from tfmon.api.run_base import run_until_over
from tfmon.errors import TfmonError
from tfmon.lanes.plan import RacePlan
from tfmon.model.race import Claim, ClaimResult, ScenarioInfo, judge
from tfmon.model.readings import SPENDING, Estimate

NARROW = 0.1
"""Half width, as a share of the ratio, at which a decided race ends early."""
LONGEST_S, SHORTEST_S = 12.0, 6.0
ALL_S = 540.0
"""For all claims; the rest of 10 minutes is for slow starts."""
START_S = 6.0
"""Time of a race before its start signal, to load TensorFlow twice."""


def verify_claims(
    infos: Sequence[ScenarioInfo], python: Path, seconds: float | None = None
) -> tuple[list[ClaimResult], str]:
    """Return the results and the interruption. Thread: the main thread.

    Args:
        infos: The scenarios.
        python: The interpreter that trains.
        seconds: The length of each race. `None`: 10 minutes for all.
    """
    claims = [(info, claim) for info in infos for claim in info.claims]
    raced = [(info, claim) for info, claim in claims if _unraced(info, claim) is None]
    run = _ClaimsProgram(raced, python, seconds)
    interrupted = run_until_over(run)
    measured = iter(run.results)
    results = (_unraced(info, claim) or next(measured, None) for info, claim in claims)
    return [result for result in itertools.takewhile(bool, results) if result is not None], interrupted


class _ClaimsProgram(Program):
    """The races of claims, one after the other."""

    def __init__(self, claims: list[tuple[ScenarioInfo, Claim]], python: Path, seconds: float | None) -> None:
        super().__init__(RaceOptions(python=python))
        self.results: list[ClaimResult] = []
        self._claims, self._seconds = claims, seconds
        self._since_s = self._began_s = time.monotonic()
        self._length_s = LONGEST_S
        self._starts_s: list[float] = []
        self._measures = False

    def begin(self, plan: RacePlan | None = None) -> None:
        """Begin the race of the next claim, if any."""
        while len(self.results) < len(self._claims):
            info, claim = self._claims[len(self.results)]
            before = self.session.snapshot().race.number
            try:
                super().begin(self._planned(info, claim))
                self._measures = self.session.snapshot().race.number > before
                if self._measures:
                    return
                raise TfmonError("its lanes could not be started")
            except TfmonError as error:
                self.results.append(ClaimResult(info.name, claim, "not testable here", reason=error.message))

    def join(self, timeout_s: float) -> bool:
        """Wait; return whether every claim has a result."""
        over = super().join(timeout_s)
        if self._measures and (result := self._result(over=over)) is not None:
            self.results.append(result)
            self._measures = False
            self._starts_s.append(time.monotonic() - self._began_s - self._elapsed_s)
            self.lanes.finish()
        if over and not self._measures:
            self.begin()
        return len(self.results) == len(self._claims)

    def line(self) -> str:
        """Return the claim and the remaining time."""
        number = min(len(self.results) + 1, len(self._claims))
        info, claim = self._claims[number - 1]
        left = units.clock(self._left * (self._start_s + self._length_s))
        return f"{number} of {len(self._claims)}  {info.name}: {claim.id}   about {left} left"

    def _planned(self, info: ScenarioInfo, claim: Claim) -> RacePlan:
        self._began_s = time.monotonic()
        left_s = ALL_S - (self._began_s - self._since_s)
        self._length_s = self._seconds or claim.seconds or length_of(left_s, self._left, self._start_s)
        fresh = self._length_s >= FRESH_FROM_S
        lanes = (claim.first, claim.second)
        return self.plan(info, replace(self._options, lanes=lanes, seconds=self._length_s, fresh=fresh))

    @property
    def _left(self) -> int:
        return len(self._claims) - len(self.results)

    @property
    def _start_s(self) -> float:
        """The mean time of a race before its start signal."""
        return fmean(self._starts_s) if self._starts_s else START_S

    @property
    def _elapsed_s(self) -> float:
        snapshot = self.session.snapshot()
        started_ns = snapshot.race.started_ns
        return 0.0 if started_ns is None else (snapshot.at_ns - started_ns) / 1e9

    def _result(self, *, over: bool) -> ClaimResult | None:
        """Return the result, or `None` if the race must go on."""
        info, claim = self._claims[len(self.results)]
        failed = next((lane for lane in self.session.snapshot().lanes if lane.over and lane.trouble), None)
        if failed is not None and failed.trouble is not None:
            reason = f"{failed.title} failed: {failed.trouble.message}"
            return ClaimResult(info.name, claim, "not testable here", reason=reason)
        ratio = self._ratio()
        if ratio is None:
            reason = "too few slices were measured; a longer --seconds may do"
            return ClaimResult(info.name, claim, "not testable here", reason=reason) if over else None
        outcome = judge(claim, ratio)
        decided = outcome != "too close to call" and ratio.half_width <= NARROW
        return ClaimResult(info.name, claim, outcome, ratio, claim.corrected) if over or decided else None

    def _ratio(self) -> Estimate | None:
        """Return the ratio so far. The race may end before its length."""
        snapshot = self.session.snapshot()
        first, second = snapshot.lanes
        result = compare(pairs_of(first.slices, second.slices), snapshot.race.between)
        share = min(1.0, self._elapsed_s / self._length_s)
        return result.estimate(Looks(SPENDING, share)) if result is not None else None


def _unraced(info: ScenarioInfo, claim: Claim) -> ClaimResult | None:
    if not claim.first:
        return ClaimResult(info.name, claim, "corrected", reason=claim.corrected)
    if claim.needs == "mac" and platform.system() != "Darwin":
        return ClaimResult(info.name, claim, "not testable here", reason="it needs a Mac")
    return None


def length_of(left_s: float, races: int, start_s: float) -> float:
    """Return the length of a race, so that all fit into `left_s`."""
    return min(LONGEST_S, max(SHORTEST_S, left_s / max(1, races) - start_s))

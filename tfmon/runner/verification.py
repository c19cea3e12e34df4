"""Measures the claims that scenarios carry, one race each."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from pathlib import Path

from tfmon import units
from tfmon.analysis.statistics import log_speeds, ratio
from tfmon.catalog import ScenarioInfo
from tfmon.errors import TfmonError
from tfmon.model.claims import Claim, ClaimResult, judge
from tfmon.model.lane_state import FAILED
from tfmon.runner import headless
from tfmon.runner.planner import RaceOptions
from tfmon.runner.program import Program

NARROW = 0.02
"""A race ends early when half the width of the interval over the ratio is as small as this."""
ABOUT_S = 20.0
"""Time a claim takes before one was measured: TensorFlow is loaded twice, then comes the race."""


def verify_claims(infos: Sequence[ScenarioInfo], python: Path, seconds: float) -> tuple[list[ClaimResult], str]:
    """Measure every claim of some scenarios that can be tested here, and tell on a terminal how far it is.

    Args:
        infos: The scenarios.
        python: The interpreter that trains.
        seconds: Length of a race at most.

    Returns:
        A result for each claim, and why the verification was interrupted, or "".

    Thread: the main thread, for the signals.
    """
    claims = [(info, claim) for info in infos for claim in info.claims]
    results: list[ClaimResult] = []
    took: list[float] = []
    for place, (info, claim) in enumerate(claims):
        left = sum(bool(claim.first) and claim.needs == "" for _, claim in claims[place:])
        each = sum(took) / len(took) if took else ABOUT_S
        what = f"{place + 1} of {len(claims)}  {info.name}: {claim.id}"
        headless.show_progress(f"{what}   about {units.clock(left * each)} left")
        began = time.monotonic()
        result, raced, interrupted = _verify(info, claim, python, seconds)
        if interrupted:
            headless.show_progress("")
            return results, interrupted
        if raced:
            took.append(time.monotonic() - began)
        results.append(result)
    headless.show_progress("")
    return results, ""


def _verify(info: ScenarioInfo, claim: Claim, python: Path, seconds: float) -> tuple[ClaimResult, bool, str]:
    """Return the result of one claim, whether it took a race, and why that was interrupted, or ""."""

    def untestable(reason: str) -> ClaimResult:
        return ClaimResult(info.name, claim, "not testable here", reason=reason)

    if not claim.first:
        return ClaimResult(info.name, claim, "corrected", reason=claim.corrected), False, ""
    if claim.needs == "mac" and platform.system() != "Darwin":
        return untestable("it needs a Mac"), False, ""
    lanes = (claim.first, claim.second)
    program = Program(RaceOptions(lanes=lanes, python=python, seconds=seconds, until_ci=NARROW))
    try:
        plan = program.plan(info)
    except TfmonError as error:
        program.close()
        return untestable(error.message), False, ""
    interrupted = headless.run(program, plan, quiet=True)
    raced = program.session.snapshot().lanes
    for lane in raced:
        if lane.phase == FAILED and lane.trouble is not None:
            return untestable(f"{lane.title} failed: {lane.trouble.message}"), True, interrupted
    found = ratio(log_speeds(raced[0].slices), log_speeds(raced[1].slices))
    if found is None:
        return untestable("too few slices were measured; a longer --seconds may do"), True, interrupted
    return ClaimResult(info.name, claim, judge(claim, found), found, claim.corrected), True, interrupted

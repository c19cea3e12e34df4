"""Measures the claims of scenarios, one race each."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from pathlib import Path

from tfmon import units
from tfmon.analysis.prediction import looks_of
from tfmon.analysis.statistics import log_speeds, ratio
from tfmon.api.options import FRESH_FROM_S, RaceOptions
from tfmon.api.program import Program
from tfmon.api.run import run_until_over, show_progress
from tfmon.api.runs import RaceRun
from tfmon.catalog import ScenarioInfo
from tfmon.errors import TfmonError
from tfmon.model.events import Event
from tfmon.model.lane_events import SliceEnded
from tfmon.model.lane_state import FAILED
from tfmon.model.race import Claim, ClaimResult, judge
from tfmon.model.readings import Estimate
from tfmon.model.session import Snapshot

NARROW = 0.1
"""A decided race ends early at this half width of the interval over its ratio."""
LONGEST_S, SHORTEST_S = 12.0, 6.0
ALL_S = 540.0
"""Approximate time for all claims, with the remainder of 10 minutes for slow starts."""
START_S = 6.0
"""Time of a claim besides its race, before the first was measured: TensorFlow is loaded twice."""


def verify_claims(
    infos: Sequence[ScenarioInfo], python: Path, seconds: float | None = None
) -> tuple[list[ClaimResult], str]:
    """Measure every testable claim of some scenarios, with progress on a terminal.

    Returns a result for each claim, and why it was interrupted, or "".

    Args:
        seconds: Longest race. `None` for the limit of 10 minutes for all, see `LONGEST_S`.

    Thread: the main thread, for the signals.
    """
    claims = [(info, claim) for info in infos for claim in info.claims]
    results: list[ClaimResult] = []
    took: list[float] = []
    starts: list[float] = []
    verified_since = time.monotonic()
    for place, (info, claim) in enumerate(claims):
        left = sum(bool(claim.first) and claim.needs == "" for _, claim in claims[place:])
        start_s = sum(starts) / len(starts) if starts else START_S
        spent_s = time.monotonic() - verified_since
        length_s = seconds or claim.seconds or _length_s(ALL_S - spent_s, left, start_s)
        each = sum(took) / len(took) if took else start_s + length_s
        what = f"{place + 1} of {len(claims)}  {info.name}: {claim.id}"
        show_progress(f"{what}   about {units.clock(left * each)} left")
        began = time.monotonic()
        result, raced, interrupted = _verify(info, claim, python, length_s)
        if interrupted:
            show_progress("")
            return results, interrupted
        if raced is not None:
            took.append(time.monotonic() - began)
            starts.append(max(0.0, took[-1] - raced))
        results.append(result)
    show_progress("")
    return results, ""


def _length_s(left_s: float, races: int, start_s: float) -> float:
    """Return the possible length of a race, if this number of races must fit into the remaining time."""
    return min(LONGEST_S, max(SHORTEST_S, left_s / max(1, races) - start_s))


def _verify(
    info: ScenarioInfo, claim: Claim, python: Path, seconds: float
) -> tuple[ClaimResult, float | None, str]:
    """Return the result of one claim, its race time (`None` without one), and why it was interrupted."""

    def untestable(reason: str) -> ClaimResult:
        return ClaimResult(info.name, claim, "not testable here", reason=reason)

    if not claim.first:
        return ClaimResult(info.name, claim, "corrected", reason=claim.corrected), None, ""
    if claim.needs == "mac" and platform.system() != "Darwin":
        return untestable("it needs a Mac"), None, ""
    lanes = (claim.first, claim.second)
    program = Program(RaceOptions(lanes=lanes, python=python, seconds=seconds, fresh=seconds >= FRESH_FROM_S))
    try:
        plan = program.plan(info)
    except TfmonError as error:
        program.close()
        return untestable(error.message), None, ""

    def finish_when_decided(event: Event) -> None:
        if not isinstance(event, SliceEnded):
            return
        result = _ratio(program.session.snapshot())
        if result is not None and result.half_width <= NARROW and judge(claim, result) != "too close to call":
            program.lanes.finish()

    program.session.listen(finish_when_decided)
    interrupted = run_until_over(RaceRun(program, plan), quiet=True)
    snapshot = program.session.snapshot()
    lasted_s = snapshot.raced_s or 0.0
    for lane in snapshot.lanes:
        if lane.phase == FAILED and lane.trouble is not None:
            return untestable(f"{lane.title} failed: {lane.trouble.message}"), lasted_s, interrupted
    result = _ratio(snapshot)
    if result is None:
        return untestable("too few slices were measured; a longer --seconds may do"), lasted_s, interrupted
    return ClaimResult(info.name, claim, judge(claim, result), result, claim.corrected), lasted_s, interrupted


def _ratio(snapshot: Snapshot) -> Estimate | None:
    """Return the ratio of the two lanes, with an interval that is valid at any end of the race."""
    first, second = snapshot.lanes
    looks = looks_of(snapshot.race, (first.slices, second.slices), over=False)
    return ratio(log_speeds(first.slices), log_speeds(second.slices), looks, snapshot.race.between)

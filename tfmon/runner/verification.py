"""`tfmon verify`: measures the claims that scenarios carry, one race each."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tfmon
from tfmon import units
from tfmon.analysis import statistics
from tfmon.analysis.claims import Claim, ClaimResult, judge, measured, prediction
from tfmon.catalog import ScenarioInfo
from tfmon.errors import DeviceAbsentError, TfmonError
from tfmon.model.lane_state import FAILED
from tfmon.model.session import Machine
from tfmon.runner import headless
from tfmon.runner.planner import RaceOptions
from tfmon.runner.program import Program

SECONDS = 12.0
"""Longest race of one claim."""
NARROW = 0.02
"""Half the width of the interval over the ratio at which a race ends before that."""
ABOUT_S = 20.0
"""What a claim takes, before one was measured: loading TensorFlow twice, then the race."""


class Verification:
    """Measures claims one after another."""

    def __init__(self, infos: Sequence[ScenarioInfo], python: Path, seconds: float = SECONDS) -> None:
        self._claims = [(info, claim) for info in infos for claim in info.claims]
        self._python = python
        self._seconds = seconds
        self.findings: list[ClaimResult] = []
        self.interrupted = ""
        """Why the verification ended early; empty if it did not."""
        self.machine = Machine()

    def run(self) -> None:
        """Measure every claim that can be tested here, and say on a terminal how far it is."""
        took: list[float] = []
        for place, (info, claim) in enumerate(self._claims):
            left = self._races_left(place)
            self._tell(f"{place + 1} of {len(self._claims)}  {info.name}: {claim.id}", left, took)
            began = time.monotonic()
            finding, raced = self._find(info, claim)
            if self.interrupted:
                break
            if raced:
                took.append(time.monotonic() - began)
            self.findings.append(finding)
        self._tell("", 0, took)

    def _find(self, info: ScenarioInfo, claim: Claim) -> tuple[ClaimResult, bool]:
        if not claim.first:
            return ClaimResult(info.name, claim, "corrected", why=claim.corrected), False
        if claim.needs == "mac" and platform.system() != "Darwin":
            return ClaimResult(info.name, claim, "not testable here", why="it needs a Mac"), False
        wishes = RaceOptions(
            lanes=(claim.first, claim.second), python=self._python, seconds=self._seconds, until_ci=NARROW
        )
        program = Program(wishes)
        try:
            plan = program.plan(info)
        except (DeviceAbsentError, TfmonError) as error:
            program.close()
            return ClaimResult(info.name, claim, "not testable here", why=error.message), False
        self.interrupted = headless.run(program, plan, quiet=True)
        snapshot = program.session.snapshot()
        self.machine = snapshot.machine
        for lane in snapshot.lanes:
            if lane.phase == FAILED and lane.trouble is not None:
                why = f"{lane.title} failed: {lane.trouble.message}"
                return ClaimResult(info.name, claim, "not testable here", why=why), True
        first, second = snapshot.lanes
        ratio = statistics.ratio(first.slices, second.slices)
        if ratio is None:
            why = "too few slices were measured; a longer --seconds may do"
            return ClaimResult(info.name, claim, "not testable here", why=why), True
        outcome = judge(claim, ratio)
        return ClaimResult(info.name, claim, outcome, ratio, claim.corrected), True

    def _races_left(self, place: int) -> int:
        return sum(bool(claim.first) and claim.needs == "" for _, claim in self._claims[place:])

    def _tell(self, what: str, races_left: int, took: Sequence[float]) -> None:
        if not sys.stderr.isatty():
            return
        each = sum(took) / len(took) if took else ABOUT_S
        left = f"   about {units.clock(races_left * each)} left" if what else ""
        sys.stderr.write(f"\r\x1b[K{what}{left}"[:160])
        sys.stderr.flush()


def to_json(verification: Verification) -> dict[str, Any]:
    """Return all findings as plain values."""
    return {
        "schema": 1,
        "tfmon": tfmon.__version__,
        "claims": [
            {
                "scenario": finding.scenario,
                "id": finding.claim.id,
                "source": finding.claim.source,
                "says": finding.claim.says,
                "first": finding.claim.first or None,
                "second": finding.claim.second or None,
                "at_least": finding.claim.at_least if finding.claim.first else None,
                "at_most": finding.claim.at_most,
                "outcome": finding.outcome,
                "ratio": finding.ratio.value if finding.ratio else None,
                "ratio_ci95": [finding.ratio.low, finding.ratio.high] if finding.ratio else None,
                "pairs": finding.ratio.pairs if finding.ratio else None,
                "why": finding.why or None,
            }
            for finding in verification.findings
        ],
        "interrupted": verification.interrupted or None,
    }


def to_text(verification: Verification) -> str:
    """Return all findings as a table, a claim in two or three lines, and the count of each outcome."""
    lines: list[str] = []
    scenario = ""
    for finding in verification.findings:
        if finding.scenario != scenario:
            scenario = finding.scenario
            lines += ["", scenario]
        lines.append(f"  {finding.outcome:18} {finding.claim.id}: {finding.claim.says}")
        if finding.ratio is not None:
            lines.append(f"  {'':18} {prediction(finding.claim)}: measured {measured(finding)}")
        if finding.why:
            lines.append(f"  {'':18} {finding.why}")
    counts: dict[str, int] = {}
    for finding in verification.findings:
        counts[finding.outcome] = counts.get(finding.outcome, 0) + 1
    total = ", ".join(f"{amount} {outcome}" for outcome, amount in sorted(counts.items()))
    lines += ["", f"{len(verification.findings)} claims: {total or 'none'}"]
    if verification.interrupted:
        lines.append(verification.interrupted)
    return "\n".join(lines[1:] if lines and not lines[0] else lines)

"""Loops drawn from the grammar of many_loops.py: each figure is exact, or unknown with a reason.

An eighth of them is run as a rule; `TFMON_LOOPS=1` runs all.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import HANGS_S

pytestmark = [pytest.mark.tensorflow]

HERE = Path(__file__).parent
LOOPS, PARTS = 408, 8
LEAST_EXACT = 0.9
RUN = PARTS if os.environ.get("TFMON_LOOPS") else 1


@pytest.fixture(scope="module")
def counted() -> list[tuple[str, dict[str, float | None], dict[str, float | None], dict[str, str], int]]:
    """Run the loops, one after the other in each of several processes."""
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
    found = []
    for first in range(RUN):
        words = [sys.executable, HERE / "many_loops.py", str(first), str(PARTS), str(LOOPS)]
        run = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=HANGS_S, check=False)
        assert run.returncode == 0, run.stderr[-2_000:]
        found += [json.loads(line) for line in run.stdout.splitlines() if line.startswith("[")]
    return found


def figure(what: str, true: float | None, known: float | None, reasons: dict[str, str]) -> str:
    """Return whether a figure is exact, unknown or wrong."""
    if known is None or (not known and what != "loss"):
        return "exact" if true is None else "unknown" if reasons.get(what) else "wrong: unknown without a reason"
    if what == "steps" and reasons.get("steps"):
        return "unknown"
    close = true is not None and abs(known - true) <= (1e-5 * max(1.0, abs(true)) if what == "loss" else 0)
    return "exact" if close else f"wrong: {known} of {true}"


def test_each_figure_is_exact_or_unknown_and_most_are_exact(counted):
    found = {
        name: {what: figure(what, true[what], known[what], reasons) for what in true}
        for name, true, known, reasons, _ in counted
    }
    wrong = {name: each for name, each in found.items() if any(one.startswith("wrong") for one in each.values())}
    assert not wrong
    assert not any(failures for *_, failures in counted)
    exact = sum(set(each.values()) == {"exact"} for each in found.values())
    assert exact >= LEAST_EXACT * len(found), f"{exact} of {len(found)}"

"""Whether tfmon can train here at all: a lane on the CPU trains five steps, started as in a race."""

from __future__ import annotations

import time
from pathlib import Path

from tfmon.catalog import find_scenario
from tfmon.doctor.checks import BROKEN, OK, TENSORFLOW, Finding
from tfmon.doctor.report import Report
from tfmon.errors import TfmonError
from tfmon.model.lane_state import DONE
from tfmon.runner.headless import follow_race, pause
from tfmon.runner.planner import RaceOptions
from tfmon.runner.program import Program

STEPS = 5
TRIAL_S = 120.0
"""How long the lane may take; importing TensorFlow from a slow disk takes most of it."""


def try_lane(python: Path, report: Report, limit_s: float = TRIAL_S) -> Finding:
    """Return whether a lane trains with an interpreter; none is started where its TensorFlow is broken.

    Thread: any; blocks for seconds, at most for `limit_s` and the end of the lane.
    """
    if broken := report.of(TENSORFLOW, BROKEN):
        finding = broken[0].finding
        return Finding(BROKEN, f"no: {broken[0].title}: {finding.found}", fix=finding.fix)
    program = Program(RaceOptions(lanes=("cpu",), python=python, steps=STEPS, watched=False))
    began_s = time.monotonic()

    def wait() -> bool:
        return pause() or time.monotonic() - began_s > limit_s

    try:
        follow_race(program, program.plan(find_scenario("small-dense")), wait)
        seconds = time.monotonic() - began_s
        (lane,) = program.session.snapshot().lanes
    except TfmonError as error:
        return Finding(BROKEN, f"no: {error.message}", fix=error.hint)
    finally:
        program.close()
    if lane.phase == DONE:
        return Finding(OK, f"yes, in {seconds:.0f} s")
    if lane.trouble is not None:
        return Finding(BROKEN, f"no: {lane.trouble.message}", fix=lane.trouble.hint)
    late = f"no: it was still {lane.phase} after {limit_s:.0f} s"
    return Finding(BROKEN, late, fix="end other programs, or name another interpreter with --python")

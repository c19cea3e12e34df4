"""The progress of a race."""

from __future__ import annotations

from tfmon import units
from tfmon.analysis.analysis import Analysis
from tfmon.analysis.verdict import FASTER, SAME
from tfmon.model.session import Snapshot


def outlook(analysis: Analysis) -> str:
    """Return the remaining time as text."""
    race, parts = analysis.snapshot.race, []
    if race.seconds is not None and race.started_ns is not None:
        left_s = race.seconds - (analysis.snapshot.at_ns - race.started_ns) / 1e9
        parts.append(f"{units.clock(left_s)} left")
    if analysis.verdict.left_s is not None:
        goal = f"±{100 * race.until_ci:g} %" if race.until_ci is not None else "an answer"
        parts.append(f"{goal} in about {units.about(analysis.verdict.left_s)}")
    elif analysis.verdict.kind in (FASTER, SAME):
        parts.append("there is an answer")
    return "".join(f"   {part}" for part in parts)


def speeds(snapshot: Snapshot) -> str:
    """Return each lane's speed as text."""
    parts = []
    for lane in snapshot.lanes:
        speed = lane.recent().examples_per_s
        seconds = (snapshot.at_ns - lane.phase_since_ns) / 1e9
        state = f"{units.rate(speed)} examples/s" if speed is not None else f"{lane.phase} {seconds:.0f} s"
        parts.append(f"{lane.spec.name}: {state}")
    return "   ".join(parts)

"""What is told of a race before it is decided: a bound from a step that still runs, and how much longer it takes.

A step that has run for 12 s without an end shows that its lane does at most one in 12 s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tfmon import units
from tfmon.analysis.finish import ended_itself
from tfmon.analysis.intervals import Looks
from tfmon.analysis.prediction import round_s
from tfmon.analysis.statistics import Comparison
from tfmon.model.knobs import BATCH_SIZE
from tfmon.model.lane_state import LaneState
from tfmon.model.lane_statistics import SliceSpeed
from tfmon.model.session import Snapshot

LEAST = 1.5
"""A lower bound of the ratio below this is not told."""
LONG_ROUND_S = 5.0
"""Where a round takes longer, the time that is left is told in rounds, too."""
LONG_STEP_S = 1.0
"""From so long steps on there is something to tell."""


def unfinished(lanes: Sequence[LaneState], now_ns: int) -> tuple[str, float | None]:
    """Return by how much one of two lanes is faster, as far as its steps tell, and the least ratio.

    The text is empty where nothing is known yet, or where steps are short. The ratio is None without such a bound.
    """
    if len(lanes) != 2:
        return "", None
    fast, slow = sorted(lanes, key=lambda lane: lane.steady.examples_per_s or 0.0, reverse=True)
    ahead, behind = fast.steady.examples_per_s, slow.steady.examples_per_s
    if ahead is None:
        return "", None
    if behind is not None:
        steps = slow.steady.steps
        if not steps or slow.steady.span_ns < LONG_STEP_S * 1e9 * steps:
            return "", None
        so_far = f"{steps} {'step' if steps == 1 else 'steps'} of {slow.title} so far"
        return f"{fast.title} about {units.ratio(ahead / behind)} faster ({so_far})", None
    runs_s, batch = slow.step_runs_s(now_ns), _batch(slow) or _batch(fast)
    at_least = ahead * runs_s / batch if batch else 0.0
    if at_least < LEAST or runs_s < LONG_STEP_S or slow.killed:
        return "", None
    step = "step" if slow.knob_marks else "first step"
    state = f"{slow.title}'s {step} is still running, {runs_s:.0f} s"
    if slow.over:
        state = f"{slow.title} did not end its {step} in {runs_s:.0f} s"
    return f"{fast.title} at least {units.ratio(at_least)} faster ({state})", at_least


def _batch(lane: LaneState) -> float | None:
    """Return the examples of a lane's step; None before it has reported any, and without a known batch."""
    if lane.examples and lane.steps:
        return lane.examples / lane.steps
    size = lane.in_effect.get(BATCH_SIZE.name)
    return float(size) if isinstance(size, int | float) else None


# ---------------- how much longer it takes


def falling(
    left_s: float, snapshot: Snapshot, slices: Sequence[Sequence[SliceSpeed]], answer_ns: int | None
) -> tuple[float, int]:
    """Return how much longer it takes, at most what was told before until that has passed, and when it ends."""
    measured_ns = max(lane[-1].at_ns for lane in slices)
    now_ns, then_ns = max(snapshot.at_ns, measured_ns), measured_ns + round(left_s * 1e9)
    if answer_ns is not None and answer_ns > now_ns:
        then_ns = min(then_ns, answer_ns)
    return max(0.0, (then_ns - now_ns) / 1e9), then_ns


def longer_text(
    left_s: float | None, snapshot: Snapshot, comparison: Comparison, looks: Looks, *, over: bool
) -> str:
    """Say how much longer it takes, or that no time of this race is enough."""
    if left_s is not None and not (over and ended_itself(snapshot.lanes)):
        about = f"; about {units.about(left_s)}"
        pace_s = round_s([lane.slices for lane in snapshot.lanes])
        if pace_s is not None and pace_s > LONG_ROUND_S:
            about += f" ({max(1, round(left_s / pace_s))} rounds)"
        return f"{about} more would settle it" if over else about
    between = comparison.between
    limited = between is not None and between.reach(looks) > comparison.center.reach(looks)
    if snapshot.race.fresh or not limited:
        return ""
    script = any(lane.command for lane in snapshot.lanes)
    return "; between-process variance is too large" + ("" if script else "; use --fresh")


def more_rounds(snapshot: Snapshot, lanes: Sequence[LaneState], missing: int) -> str:
    """Say how much longer the race had to last for so many rounds more; empty where no round was measured."""
    ends = [lane.slices[-1].at_ns for lane in lanes if lane.slices]
    if not ends or missing < 1:
        return ""
    pace_s = round_s([lane.slices for lane in lanes])
    if pace_s is None:
        if snapshot.race.started_ns is None:
            return ""
        pace_s = (max(ends) - snapshot.race.started_ns) / 1e9
    return f"; stopped {max(1, math.ceil(missing * pace_s))} s before a verdict"

"""What steps of seconds tell of a race before there is an interval: a bound, from a step that still runs. Pure.

A step that has run for 12 s without an end shows that its lane does at most one in 12 s.
"""

from __future__ import annotations

from collections.abc import Sequence

from tfmon import units
from tfmon.model.knobs import BATCH_SIZE
from tfmon.model.lane_state import LaneState

LEAST = 1.5
"""A lower bound of the ratio below this is not told."""
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

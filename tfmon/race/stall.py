"""When a lane's silence means that it hangs. Pure.

A lane that trains tells of a window every fifth of a second, or after every step where one takes longer. So its
silence is measured in its own windows; where those say nothing, because it loads, builds or compiles, it may take
long. A false alarm is worse than a late one.
"""

from __future__ import annotations

from tfmon.model.lane_state import PAUSED, RACING, READY, STARTING, LaneState
from tfmon.model.session import TURNS, Snapshot

LEAST_S = 20.0
"""No shorter silence means anything: a profile, an evaluation or a checkpoint may lie between two steps."""
TIMES_WINDOW, TIMES_WARM_UP = 30, 3
"""How many of its slowest windows, and of its warm-up (which holds a trace and mostly a compilation), a lane may
be silent."""
PREPARING_S = 600.0
"""Patience with imports, building, tracing, and a step that is compiled anew."""
STARTING_S = 60.0
"""Patience with a child that has not said a word; a script's first comes after its imports and data only."""
SCRIPT_S = 60.0
"""Patience with a script between two steps, where it may evaluate, save or fetch data without a word."""


def expected(lane: LaneState, snapshot: Snapshot) -> bool:
    """Return whether a lane's silence means anything: it gets ready, or should be training now."""
    race = snapshot.race
    if lane.over or lane.phase in (READY, PAUSED):
        return False
    if lane.phase != RACING:
        return True
    takes_turns = bool(race.alone) or (race.mode == TURNS and len(snapshot.lanes) > 1)
    return race.turn == lane.spec.name if takes_turns else True


def patience_s(lane: LaneState, least_s: float = LEAST_S) -> float:
    """Return how long a lane may be silent that is expected to speak."""
    if lane.phase == STARTING and not lane.command:
        return max(least_s, STARTING_S)
    if lane.phase != RACING or lane.asked or _between_steps(lane):
        return max(least_s, PREPARING_S)
    pulse = lane.pulse
    if lane.command:
        least_s = max(least_s, SCRIPT_S)
    return max(least_s, TIMES_WINDOW * pulse.slowest_ns / 1e9, TIMES_WARM_UP * pulse.warm_up_ns / 1e9)


def _between_steps(lane: LaneState) -> bool:
    """Return whether Keras does something else than steps for a script: it validates, or an epoch has ended."""
    progress = lane.progress
    return progress is not None and (progress.doing != "fit" or progress.batch == progress.batches)


def silent_since_ns(lane: LaneState, expected_ns: int, now_ns: int) -> int:
    """Return the lane's last sign of life, or when it was expected to begin.

    A child that tells of a time to come is not believed.
    """
    heard_ns = lane.pulse.heard_ns
    return max(expected_ns, heard_ns) if heard_ns <= now_ns else expected_ns

"""Who is ahead, by what factor, and what that figure is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfmon import units
from tfmon.model.lane_state import LaneState

CONTENDED = "both train at once and share the cores, so the factor is not what each would do alone"


@dataclass(frozen=True, slots=True)
class Standing:
    """The verdict as it stands."""

    text: str
    """One line: who is ahead and by what factor, or why that cannot be said."""
    winner: str | None = None
    """Name of the lane that is ahead."""
    ratio: float | None = None
    """Throughput of the winner over that of the slowest lane."""
    note: str = ""
    """What limits the figure; empty if nothing does."""


def standing(lanes: Sequence[LaneState]) -> Standing:
    """Compare the lanes by their examples/s in steady state since each one's last knob change.

    Units: the ratio is winner over slowest; both are examples over wall time of windows without a mark.
    """
    speeds = [(speed, lane) for lane in lanes if (speed := lane.steady.examples_per_s) is not None and speed > 0]
    waiting = [lane for lane in lanes if not lane.over and lane.steady.examples_per_s is None]
    if waiting or len(speeds) < 2:
        return Standing(_why_not(lanes, len(speeds)))
    speeds.sort(key=lambda pair: pair[0], reverse=True)
    (best, winner), (worst, loser) = speeds[0], speeds[-1]
    ratio = best / worst
    text = f"{winner.title} is {units.ratio(ratio)} faster than {loser.title}"
    return Standing(text, winner.spec.name, ratio, CONTENDED)


def _why_not(lanes: Sequence[LaneState], measured: int) -> str:
    if len(lanes) == 1:
        return "one lane: nothing to compare it with"
    if any(not lane.over for lane in lanes):
        return "no verdict yet: the lanes are getting ready"
    return f"no verdict: {measured} of {len(lanes)} lanes trained"

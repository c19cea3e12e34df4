"""Lanes that train at the same time, cut into stretches of time that all of them trained in. Pure.

How lanes share the cores changes from second to second, so only what they did in the same second is compared.
"""

from __future__ import annotations

from collections.abc import Sequence

from tfmon.model.lane_state import LaneState
from tfmon.model.lane_statistics import Point, SliceSpeed

SHORTEST_NS = 1_000_000_000
"""A stretch holds about five windows of each lane."""


def stretches(lanes: Sequence[LaneState]) -> tuple[int, list[tuple[SliceSpeed, ...]]]:
    """Return the length of a stretch in nanoseconds, and what each lane did in each stretch that all trained in.

    The stretches are numbered, like rounds, and a window belongs to the one that it ends in. A stretch is as long
    as two of the longest windows: a lane whose steps take seconds reports that rarely. The first and the last
    one of a lane may be cut off; it counts with the time that the lane's windows have in it.
    """
    counted = [_counted(lane) for lane in lanes]
    longest_ns = max((point.span_ns for points in counted for point in points), default=0)
    length_ns = max(SHORTEST_NS, 2 * longest_ns)
    sums = [_summed(points, length_ns) for points in counted]
    common = sorted(set.intersection(*map(set, sums))) if sums else []
    return length_ns, [tuple(one[number] for number in common) for one in sums]


def _counted(lane: LaneState) -> Sequence[Point]:
    """Return the windows that are in the lane's steady state, as far back as its history reaches."""
    windows = lane.steady.windows
    steady = [point for point in lane.points if point.steady]
    return steady[-windows:] if windows > 0 else ()


def _summed(points: Sequence[Point], length_ns: int) -> dict[int, SliceSpeed]:
    found: dict[int, SliceSpeed] = {}
    for point in points:
        number = point.at_ns // length_ns
        before = found.get(number)
        examples, span_ns = (before.examples, before.span_ns) if before else (0, 0)
        found[number] = SliceSpeed(number, point.at_ns, examples + point.examples, span_ns + point.span_ns)
    return {number: one for number, one in found.items() if one.examples > 0 and one.span_ns > 0}

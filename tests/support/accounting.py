"""All time from a lane's first step to its last is measured, or left out for a reason."""

import itertools

from tfmon.model.lane_state import LaneState

MOST_SHARE = 0.02


def assert_accounted(lane: LaneState) -> None:
    """Fail if some of the lane's time is in no window and has no reason, or is counted twice."""
    measured = lane.measurements
    windows = measured.recent
    gaps = [
        (number, (after.since_ns - before.at_ns) / 1e9, before.marks, after.marks)
        for number, (before, after) in enumerate(itertools.pairwise(windows))
        if abs(after.since_ns - before.at_ns) > 1e8
    ]
    assert measured.unaccounted_ns <= MOST_SHARE * measured.span_ns, (
        f"{measured.unaccounted_ns / 1e9:.3f} s of {measured.span_ns / 1e9:.3f} s are not accounted for; "
        f"gaps between {len(windows)} windows: {gaps}; bad line: {lane.process.last_bad_line!r}"
    )

"""The analysis of a snapshot: that of its parts, computed once, with or without the one before."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.ui import racing_demo

from tfmon.analysis import statistics
from tfmon.analysis.analysis import analyse
from tfmon.analysis.bottleneck import find_bottleneck
from tfmon.analysis.crossover import curve_of
from tfmon.analysis.verdict import find_verdict
from tfmon.model.lane_statistics import SliceSpeed
from tfmon.model.series import REVERTED, Attempt, CrossoverState, TuneState
from tfmon.model.session import Snapshot

SNAPSHOT = racing_demo().session.snapshot()


def with_one_more_slice(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot after another slice of its first lane."""
    lane = snapshot.lanes[0]
    last = lane.slices[-1]
    slices = (*lane.slices, SliceSpeed(last.round + 1, last.at_ns + 1, 1, 1_000_000_000))
    changed = replace(lane, measurements=replace(lane.measurements, slices=slices))
    return replace(snapshot, lanes=(changed, *snapshot.lanes[1:]))


def test_it_holds_what_its_parts_find():
    found = analyse(SNAPSHOT)
    assert found.verdict == find_verdict(SNAPSHOT) and found.verdict.winner
    for lane, one in zip(SNAPSHOT.lanes, found.lanes, strict=True):
        assert one is found.lane(lane.spec.name) and one.lane is lane
        assert one.bottleneck == find_bottleneck(SNAPSHOT, lane) is not None
        assert one.speed == statistics.speed(statistics.log_speeds(lane.slices)) is not None
        assert (one.windows, one.discarded) == (lane.measurements.windows, lane.discarded)
    assert (found.news[:16], found.curve) == ("C batch 10 → 20:", None)
    with pytest.raises(KeyError):
        found.lane("nobody")


def test_the_analysis_before_changes_nothing_but_the_time_it_takes():
    before, after = analyse(SNAPSHOT), with_one_more_slice(SNAPSHOT)
    found = analyse(after, before)
    assert found == analyse(after) != before
    assert found.lanes[1].throughput is before.lanes[1].throughput
    assert found.lanes[0].throughput is not before.lanes[0].throughput
    fewer = replace(after, lanes=after.lanes[:1], periods=())
    assert analyse(fewer, found) == analyse(fewer), "another race"


def test_what_was_tried_is_not_advised_and_experiments_are_in_it():
    lane = SNAPSHOT.lanes[0]
    advice = find_bottleneck(SNAPSHOT, lane).advice[0]
    vain = Attempt(lane.spec.name, {advice.knob: 0}, {advice.knob: advice.value}, outcome=REVERTED)
    tuned = TuneState(lane.spec.name, attempts=(vain,))
    found = analyse(replace(SNAPSHOT, tuned=tuned, experiment=tuned, periods=()))
    assert advice not in found.lanes[0].bottleneck.advice and found.news != ""
    state = CrossoverState("batch_size", tuple(one.spec.name for one in SNAPSHOT.lanes), (1, 2))
    crossed = replace(SNAPSHOT, experiment=state)
    assert analyse(crossed).curve == curve_of(crossed, state)

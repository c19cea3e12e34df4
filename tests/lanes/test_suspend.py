"""Lanes that are stopped along with tfmon: real children of a group."""

import pytest
from support.processes import suspended
from support.waiting import wait_for

from tfmon.lanes import suspend
from tfmon.lanes.suspend import Suspender
from tfmon.model.lane_events import SUSPENDED
from tfmon.model.race import CONCURRENT, TURNS

pytestmark = pytest.mark.process


def test_all_lanes_stop_and_go_on_and_no_figure_holds_the_time(group):
    group.begin(group.plan("cpu", "gpu", mode=CONCURRENT))
    group.wait_for_steps("cpu", 100)
    group.wait_for_steps("gpu:0", 100)
    group.suspension.suspend_lanes()
    wait_for(lambda: all(map(suspended, group.pids().values())), what="both are stopped")
    group.suspension.continue_lanes()
    wait_for(lambda: len(group.lane("gpu:0").heartbeat.suspensions) == 1, what="the gap is known")
    group.wait_for_steps("cpu", 100)
    group.wait_for_steps("gpu:0", 100)
    for lane in group.session.snapshot().lanes:
        ((since_ns, until_ns),) = lane.heartbeat.suspensions
        over = [p for p in lane.points if p.at_ns > since_ns and p.at_ns - p.span_ns < until_ns]
        assert not any(point.steady for point in over)
        assert lane.measurements.discarded.get(SUSPENDED, 0) == len(over)
        assert [mark.text.startswith(SUSPENDED) for mark in lane.changes.marks] == [True]


def test_a_lane_whose_turn_it_is_not_stays_suspended(group):
    group.begin(group.plan("cpu", "gpu", mode=TURNS, slice_s=3_600))
    trains, waits = group.order_of_two()
    group.suspension.suspend_lanes()
    wait_for(lambda: suspended(group.pid(trains)), what="stopped")
    group.suspension.continue_lanes()
    group.wait_for_steps(trains)
    assert suspended(group.pid(waits))


class TestGaps:
    def test_one_that_is_known_is_not_told_again(self):
        told = []
        suspension = Suspender(tuple, lambda *gap: told.append(gap), told.append)
        suspension.record(100, 200, 1.0)
        suspension.record(150, 201, 1.0)
        suspension.record(201, 300, 1.0)
        assert [gap[:2] for gap in told] == [(100, 200), (201, 300)]

    def test_what_is_to_happen_after_a_time_waits_for_the_time_that_was_lost(self, monkeypatch):
        timers, called = [], []
        monkeypatch.setattr(suspend, "call_later", lambda _, seconds, ring, __: timers.append((seconds, ring)))
        suspension = Suspender(tuple, lambda *gap: None, pytest.fail)
        suspension.call_after(5.0, lambda: called.append("before"))
        suspension.record(0, 400_000_000, 0.4)
        suspension.call_after(1.0, lambda: called.append("after"))
        for seconds, ring in timers:  # the first one sets a third
            ring()
            assert called == ["after", "before"][: {5.0: 0, 1.0: 1, 0.4: 2}[seconds]]
        assert called == ["after", "before"]

"""The signs of life of a lane: what is one, and which windows count after a stall or a suspension."""

from __future__ import annotations

import pytest
from support.events import MS, SECOND, lane, phase, requested, started, tree_sample, window

from tfmon.model.events import LaneStalled, Suspended
from tfmon.model.lane_events import SliceEnded, StackReported
from tfmon.model.lane_state import IN_A_STEP, MOST_SUSPENSIONS, STALL, SUSPENDED


def stall(at_s: float, since_s: float) -> LaneStalled:
    return LaneStalled(lane="cpu", at_ns=round(at_s * SECOND), since_ns=round(since_s * SECOND))


def suspended(since_s: float, until_s: float) -> Suspended:
    stamps = {"since_ns": round(since_s * SECOND), "at_ns": round(until_s * SECOND)}
    return Suspended(lane="cpu", lasted_s=until_s - since_s, **stamps)


def short(at_s: float, span_s: float = 0.2):
    return window(round(at_s * SECOND), round(span_s * SECOND))


class TestHeartbeat:
    @pytest.mark.parametrize(
        "event", [short(7), SliceEnded(at_ns=7 * SECOND, round=1), phase("racing", 7 * SECOND)]
    )
    def test_every_event_from_the_lane_is_a_sign_of_life(self, event):
        heartbeat = lane("cpu", stall(5, 1), event).heartbeat
        assert (heartbeat.heard_ns, heartbeat.stalled_since_ns) == (7 * SECOND, None)

    def test_events_about_the_lane_and_reported_stacks_are_none(self):
        stack = StackReported(lane="cpu", at_ns=9 * SECOND, lines=())
        state = lane("cpu", short(1), stall(8, 1), requested(1), tree_sample(), stack)
        assert (state.heartbeat.heard_ns, state.heartbeat.stalled_since_ns) == (SECOND, SECOND)
        assert state.stack is stack

    def test_the_window_that_ends_a_stall_is_discarded(self):
        state = lane("cpu", short(1, 0.3), stall(30, 1), short(40, 39), short(40.2))
        assert (state.heartbeat.stalled_since_ns, state.discarded, state.steady.windows) == (None, {STALL: 1}, 2)
        assert state.heartbeat.longest_window_ns == 300 * MS

    def test_a_window_in_which_it_was_suspended_does_not_show_how_long_its_steps_take(self):
        state = lane("cpu", short(1, 0.3), window(90 * SECOND, 80 * SECOND, marks=(IN_A_STEP,)))
        assert state.heartbeat.longest_window_ns == 300 * MS

    def test_a_restart_ends_a_stall_and_keeps_the_suspensions(self):
        heartbeat = lane("cpu", suspended(1, 3), stall(30, 1), started(40 * SECOND)).heartbeat
        assert (heartbeat.stalled_since_ns, heartbeat.heard_ns) == (None, 40 * SECOND)
        assert len(heartbeat.suspensions) == 1

    @pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1)], ids=["known before the window", "known after it"])
    def test_a_window_over_a_suspension_is_discarded_whichever_is_known_first(self, order):
        events = [short(9.9), suspended(10, 20), short(20.1, 10.2)]
        state = lane("cpu", *(events[place] for place in order), short(20.3))
        assert state.discarded == {SUSPENDED: 1}
        assert (state.steady.windows, state.steady.span_ns) == (2, 400 * MS)
        assert [point.steady for point in state.points] == [True, False, True]
        assert [(one.since_ns, one.until_ns) for one in state.heartbeat.suspensions] == [
            (10 * SECOND, 20 * SECOND)
        ]

    def test_a_suspension_is_marked_on_the_chart_and_does_not_restart_steady_state(self):
        state = lane("cpu", short(1), short(1.2), suspended(2, 14), short(14.4))
        assert [mark.text for mark in state.knob_marks] == ["suspended 12 s"]
        assert state.steady.windows == 3

    def test_the_oldest_suspensions_are_dropped(self):
        found = lane("cpu", *(suspended(at, at + 1) for at in range(0, 100, 2))).heartbeat.suspensions
        assert (len(found), found[-1].until_ns) == (MOST_SUSPENSIONS, 99 * SECOND)

    def test_the_warm_up_is_timed(self):
        state = lane("cpu", phase("warming up", 5 * SECOND), phase("ready", 12 * SECOND))
        assert state.heartbeat.warm_up_ns == 7 * SECOND

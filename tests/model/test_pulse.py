"""Signs of life, and what is left out because everything stood still."""

from __future__ import annotations

import pytest

from tfmon.model.events import KnobRequested, LaneStalled, LaneStarted, Suspended
from tfmon.model.lane_events import PhaseEntered, SliceEnded, StackReported, Window
from tfmon.model.lane_reducer import advance
from tfmon.model.lane_state import MOST_GAPS, STALL, SUSPENDED, LaneState
from tfmon.model.readings import NOT_READ, GpuSample
from tfmon.model.spec import LaneSpec

SECOND = 1_000_000_000


def window(at_s: float, span_s: float = 0.2, **values) -> Window:
    times = dict.fromkeys(("input_ns", "call_ns", "sync_ns", "report_ns", "longest_ns"), 0)
    given = {"steps": 2, "examples": 20, "step": 2, "histogram": {640: 2}, "loss": 1.0, "settings": {}, **times}
    given |= values
    return Window(lane="cpu", at_ns=round(at_s * SECOND), span_ns=round(span_s * SECOND), **given)


def after(*events) -> LaneState:
    state = LaneState(LaneSpec("cpu", name="cpu"))
    for event in events:
        state = advance(state, event)
    return state


def stall(at_s: float, since_s: float) -> LaneStalled:
    return LaneStalled(lane="cpu", at_ns=round(at_s * SECOND), since_ns=round(since_s * SECOND))


def still(since_s: float, until_s: float) -> Suspended:
    stamps = {"since_ns": round(since_s * SECOND), "at_ns": round(until_s * SECOND)}
    return Suspended(lane="cpu", lasted_s=until_s - since_s, **stamps)


def test_every_word_of_a_lane_is_a_sign_of_life():
    for event in (window(7), SliceEnded(lane="cpu", at_ns=7 * SECOND, round=1), phase("racing", 7)):
        assert after(event).heartbeat.heard_ns == 7 * SECOND


def phase(name: str, at_s: float) -> PhaseEntered:
    return PhaseEntered(lane="cpu", at_ns=round(at_s * SECOND), phase=name)


def test_what_others_say_of_it_is_none():
    gpu = GpuSample(
        at_ns=9 * SECOND, key="G", index=0, name="", busy_pct=NOT_READ, busy_source="", used_bytes=NOT_READ,
        total_bytes=NOT_READ, power_w=NOT_READ, power_limit_w=NOT_READ, temperature_c=NOT_READ,
    )  # fmt: skip
    asked = KnobRequested(lane="cpu", at_ns=9 * SECOND, request=1, knob="k", value=1)
    told = StackReported(lane="cpu", at_ns=9 * SECOND, lines=())
    state = after(window(1), stall(8, 1), asked, gpu, told)
    assert (state.heartbeat.heard_ns, state.heartbeat.stalled_since_ns) == (SECOND, SECOND)
    assert state.stack is told


def test_its_next_word_ends_a_stall_and_that_window_is_no_measurement():
    state = after(window(1), stall(30, 1), window(40, 39), window(40.2))
    assert state.heartbeat.stalled_since_ns is None
    assert state.discarded == {STALL: 1}
    assert state.steady.windows == 2
    assert state.heartbeat.longest_window_ns == SECOND // 5


def test_a_restart_ends_a_stall_and_keeps_the_gaps():
    state = after(still(1, 3), stall(30, 1), LaneStarted(lane="cpu", at_ns=40 * SECOND, pid=1, settings={}))
    assert (state.heartbeat.stalled_since_ns, state.heartbeat.heard_ns) == (None, 40 * SECOND)
    assert len(state.heartbeat.suspensions) == 1


@pytest.mark.parametrize(
    "events",
    [
        (window(9.9), still(10, 20), window(20.1, 10.2)),
        (window(9.9), window(20.1, 10.2), still(10, 20)),
    ],
    ids=["told before the window", "told after it"],
)
def test_a_window_over_a_gap_is_left_out_whichever_comes_first(events):
    state = after(*events, window(20.3))
    assert state.discarded == {SUSPENDED: 1}
    assert state.steady.windows == 2
    assert state.steady.span_ns == 2 * SECOND // 5
    assert state.heartbeat.suspensions[0].until_ns - state.heartbeat.suspensions[0].since_ns == 10 * SECOND


def test_a_gap_is_marked_on_the_time_line_with_how_long_it_lasted():
    assert [mark.text for mark in after(window(1), still(2, 14)).knob_marks] == ["suspended 12 s"]


def test_a_gap_is_no_new_beginning_of_what_is_measured():
    assert after(window(1), window(1.2), still(2, 14), window(14.4)).steady.windows == 3


def test_the_oldest_gaps_are_dropped():
    gaps = after(*(still(at, at + 1) for at in range(0, 100, 2))).heartbeat.suspensions
    assert len(gaps) == MOST_GAPS
    assert gaps[-1].until_ns == 99 * SECOND


def test_the_warm_up_is_timed():
    state = after(phase("warming up", 5), phase("ready", 12))
    assert state.heartbeat.warm_up_ns == 7 * SECOND

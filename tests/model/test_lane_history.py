"""The half hour behind the charts, the same in a replay; and the signs of life of a lane."""

from __future__ import annotations

import itertools

import pytest
from support.events import MS, SECOND, gpu_sample, lane, phase, requested, started, tree_sample, window
from support.recordings import record, small_race

from tfmon.model.events import LaneStalled, LaneStarted, Suspended
from tfmon.model.heartbeat import IN_A_STEP, MOST_SUSPENSIONS, STALL, SUSPENDED
from tfmon.model.hosts import take_gpu_sample
from tfmon.model.lane_events import SliceEnded
from tfmon.model.lane_reducer import advance
from tfmon.model.readings import Missing
from tfmon.model.script_events import StackReported
from tfmon.model.window_sums import COARSE_NS, FINE_NS, MOST_COARSE, MOST_FINE, History, add, quantile_ns
from tfmon.recordings.player import play_all


def filled(seconds: float, per_second: int = 5, **changes) -> History:
    history = History()
    for place in range(round(seconds * per_second)):
        at_ns = 1_000 * SECOND + (place + 1) * SECOND // per_second
        history = history.with_window(window(at_ns, SECOND // per_second, **changes))
    return history


def test_a_second_adds_up_its_windows_exactly():
    fast, slow = {1_500: 90}, {1_700: 10}
    history = History()
    for place, (bins, waited_ms, loss) in enumerate(((fast, 20, 0.5), (slow, 60, None), ({}, 0, 0.4))):
        one = window(
            7 * SECOND + (place + 1) * 250 * MS, 250 * MS, examples=100 * (place + 1), histogram=bins,
            input_ns=waited_ms * MS, loss=loss, round=3,
        )  # fmt: skip
        history = history.with_window(one)
    (found,) = history.with_window(window(8 * SECOND + 1)).fine
    assert (found.start_ns, found.length_ns, found.in_slice) == (7 * SECOND, FINE_NS, True)
    assert (found.since_ns, found.until_ns) == (7 * SECOND, 7 * SECOND + 750 * MS)
    assert found.examples_per_s == pytest.approx(600 / 0.75)
    assert found.input_pct == pytest.approx(100 * 80 / 750)
    assert found.loss == 0.4
    both = add(fast, slow)
    assert found.p50_ms == quantile_ns(both, 0.5) / 1e6
    assert found.p95_ms == quantile_ns(both, 0.95) / 1e6 > 2 * found.p50_ms
    assert found.cpu_pct is None, "no sample is no load of 0"


def test_five_seconds_come_from_all_their_windows_and_not_from_means_of_seconds():
    history = History()
    for at_s, count, bins in ((0, 90, {1_500: 90}), (3, 10, {1_700: 10}), (5, 1, {1_600: 1}), (10, 1, {})):
        history = history.with_window(window(100 * SECOND + at_s * SECOND, steps=count, histogram=bins))
    first = history.coarse[0]
    assert (first.start_ns, first.length_ns) == (100 * SECOND, COARSE_NS)
    assert first.p50_ms == quantile_ns({1_500: 90, 1_700: 10}, 0.5) / 1e6
    assert first.p95_ms == quantile_ns({1_500: 90, 1_700: 10}, 0.95) / 1e6


def test_stamps_from_before_this_machine_was_started_are_kept():
    history = History()
    for at_s in range(-3_600, -3_580):
        history = history.with_window(window(at_s * SECOND))
    assert len(history.fine) == 19 and history.fine[0].start_ns == -3_600 * SECOND
    assert len(history.coarse) == 3


def test_half_an_hour_is_kept_and_no_more():
    history = filled(40 * 60, per_second=1)
    assert (len(history.fine), len(history.coarse)) == (MOST_FINE, MOST_COARSE)
    end_ns = history.second.start_ns
    assert history.fine[0].start_ns <= end_ns - 300 * SECOND
    assert history.coarse[0].start_ns <= end_ns - 1_795 * SECOND
    starts = [one.start_ns for one in history.coarse]
    assert all(after - before == COARSE_NS for before, after in itertools.pairwise(starts))


def test_samples_are_means_of_what_was_read_and_a_missing_one_counts_nothing():
    history = History()
    for cpu_pct in (100.0, 300.0, Missing("gone")):
        history = history.with_sample(5 * SECOND + 1, cpu_pct=cpu_pct, private_bytes=2e6)
    history = history.with_sample(5 * SECOND + 2, gpu_busy_pct=40.0).with_sample(6 * SECOND)
    (found,) = history.fine
    assert (found.cpu_pct, found.private_bytes, found.gpu_busy_pct) == (200.0, 2e6, 40.0)
    assert (found.examples_per_s, found.p50_ms, found.input_pct, found.until_ns) == (None, None, None, 0)


def test_a_lane_keeps_its_history_over_a_restart_and_takes_all_kinds_of_samples():
    state = lane("gpu:0", phase("racing"), window(SECOND), tree_sample(150.0, lane="gpu:0"))
    state = take_gpu_sample(state, gpu_sample(at_ns=SECOND + 1, busy_pct=60.0), only_lane=True)
    again = advance(state, LaneStarted(lane="gpu:0", at_ns=9 * SECOND, pid=2, settings={}))
    now = advance(again, window(9 * SECOND + 1)).measurements.history.fine[0]
    assert (now.cpu_pct, now.gpu_busy_pct, now.examples_per_s) == (150.0, 60.0, pytest.approx(1_600))


def test_a_replay_fills_the_same_history(tmp_path):
    _, known = record(tmp_path / "race.jsonl", small_race)
    replayed = play_all(tmp_path / "race.jsonl")[1]
    for before, after in zip(known.lanes, replayed.lanes, strict=True):
        assert after.measurements.history == before.measurements.history
        assert len(after.measurements.history.fine) >= 10


def test_what_comes_late_counts_for_the_second_under_way():
    history = filled(3).with_sample(1_000 * SECOND, cpu_pct=50.0)
    assert history.second.cpu_pct.value == 50.0
    assert history.second.start_ns == filled(3).second.start_ns


# ---------------------------------------------------------------- signs of life


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
        assert state.process.stack is stack

    def test_the_window_that_ends_a_stall_is_discarded(self):
        state = lane("cpu", short(1, 0.3), stall(30, 1), short(40, 39), short(40.2))
        assert (state.heartbeat.stalled_since_ns, state.steady.windows) == (None, 2)
        assert state.measurements.discarded == {STALL: 1}
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
        assert state.measurements.discarded == {SUSPENDED: 1}
        assert (state.steady.windows, state.steady.span_ns) == (2, 400 * MS)
        assert [point.steady for point in state.points] == [True, False, True]
        assert list(state.heartbeat.suspensions) == [(10 * SECOND, 20 * SECOND)]

    def test_a_suspension_is_marked_on_the_chart_and_does_not_restart_steady_state(self):
        state = lane("cpu", short(1), short(1.2), suspended(2, 14), short(14.4))
        assert [mark.text for mark in state.changes.marks] == ["suspended 12 s"]
        assert state.steady.windows == 3

    def test_the_oldest_suspensions_are_dropped(self):
        found = lane("cpu", *(suspended(at, at + 1) for at in range(0, 100, 2))).heartbeat.suspensions
        assert (len(found), found[-1][1]) == (MOST_SUSPENSIONS, 99 * SECOND)

    def test_the_warm_up_is_timed(self):
        state = lane("cpu", phase("warming up", 5 * SECOND), phase("ready", 12 * SECOND))
        assert state.heartbeat.warm_up_ns == 7 * SECOND

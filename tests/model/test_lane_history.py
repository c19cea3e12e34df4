"""The half hour behind the charts, the same in a replay; and the signs of life of a lane."""

import pytest
from support.events import MS, SECOND, advance, gpu_sample, lane, phase, requested, started, tree_sample, window

from tfmon.model.events import LaneStalled, LaneStarted, Suspended
from tfmon.model.lane import Lane
from tfmon.model.lane_events import IN_A_STEP, SLICE_START, SUSPENDED, SliceEnded, StackReported, quantile_ns
from tfmon.model.lane_state import copied
from tfmon.model.readings import Missing
from tfmon.model.windows import MOST_OLD, OLD_SHARE, RECENT_NS, LaneWindow, Measurements, add, shortened


def test_an_old_window_adds_up_its_windows_exactly():
    fast, slow = {1_500: 90}, {1_700: 10}
    measured = Measurements()
    for place, (bins, waited_ms, loss) in enumerate(((fast, 20, 0.5), (slow, 60, None), ({}, 0, 0.4))):
        measured.add(
            window(
                6 * SECOND + (place + 1) * 250 * MS, 250 * MS, steps=sum(bins.values()),
                examples=100 * (place + 1), histogram=bins, input_ns=waited_ms * MS, loss=loss, round=3,
            )
        )  # fmt: skip
    measured.add(window(10 * SECOND))
    measured.add(window(10 * SECOND + RECENT_NS))
    assert [one.at_ns for one in measured.recent] == [10 * SECOND, 10 * SECOND + RECENT_NS]
    (found,) = measured.old
    assert (found.since_ns, found.at_ns, found.in_slice) == (6 * SECOND, 6 * SECOND + 750 * MS, True)
    assert found.examples_per_s == pytest.approx(600 / 0.75)
    assert found.input_pct == pytest.approx(100 * 80 / 750)
    assert (found.windows, found.loss, found.histogram) == (3, 0.4, {})
    both = add(fast, slow)
    assert found.p50_ms == quantile_ns(both, 0.5) / 1e6
    assert found.p95_ms == quantile_ns(both, 0.95) / 1e6 > 2 * found.p50_ms


@pytest.mark.parametrize(
    ("first", "second", "marks"),
    [
        ({}, {}, [()]),
        ({"marks": (SLICE_START,)}, {}, [()]),
        ({"marks": (SLICE_START,)}, {"marks": (SLICE_START,)}, [(SLICE_START,)]),
        ({"marks": ("warm-up",)}, {}, [("warm-up",), ()]),
        ({"round": 1}, {}, [(), ()]),
    ],
)
def test_only_windows_of_one_kind_are_added_up(first, second, marks):
    measured = Measurements()
    measured.add(window(2 * SECOND + 1, 1, **first))
    measured.add(window(2 * SECOND + 2, 1, **second))
    measured.add(window(4 * SECOND + RECENT_NS))
    measured.add(window(5 * SECOND + RECENT_NS))
    assert [one.marks for one in measured.old] == marks


def test_windows_before_and_after_a_change_stay_two():
    measured = Measurements()
    measured.add(window(2 * SECOND + 1, 1))
    measured.restart()
    measured.add(window(2 * SECOND + 2, 1))
    measured.add(window(2 * SECOND + 3, 1), process=2)
    measured.add(window(4 * SECOND + RECENT_NS))
    assert [(one.period, one.process) for one in measured.old] == [(0, 0), (1, 0), (1, 2)]


def test_a_week_takes_a_limited_number_of_windows_and_nothing_is_lost():
    items, now_ns = list[LaneWindow](), 0
    for second in range(0, 7 * 86_400, 60):
        now_ns = second * SECOND
        one = LaneWindow(
            windows=1, steps=10, examples=320, span_ns=SECOND, since_ns=now_ns - 60 * SECOND, at_ns=now_ns
        )
        items.append(one)
        if len(items) > MOST_OLD:
            items = list(shortened(tuple(items), now_ns))
            assert len(items) <= 0.8 * MOST_OLD
    assert sum(one.windows for one in items) == 7 * 86_400 // 60
    assert items[-1].at_ns - items[-2].at_ns == 60 * SECOND
    longest_ns = max(one.at_ns - one.since_ns for one in items)
    assert longest_ns <= 2 * now_ns / OLD_SHARE


def test_samples_are_means_of_what_was_read_and_a_missing_one_counts_nothing():
    measured = Measurements()
    for cpu_pct in (100.0, 300.0, Missing("gone")):
        measured.sample(4 * SECOND + 1, cpu_pct=cpu_pct, private_bytes=2e6)
    measured.sample(5 * SECOND, gpu_busy_pct=40.0)
    measured.sample(6 * SECOND)
    measured.sample(6 * SECOND + RECENT_NS)
    (found,) = measured.old_samples
    assert (found.cpu_pct.value, found.private_bytes.value, found.gpu_busy_pct.value) == (200.0, 2e6, 40.0)


def test_a_lane_keeps_its_windows_over_a_restart_and_takes_all_kinds_of_samples():
    state = lane("gpu:0", phase("racing"), window(SECOND), tree_sample(150.0, lane="gpu:0"))
    sampled = copied(state, Lane)
    sampled.on_gpu_sample(gpu_sample(at_ns=SECOND + 1, busy_pct=60.0), only_lane=True)
    again = advance(sampled, LaneStarted(lane="gpu:0", at_ns=9 * SECOND, pid=2, settings={}))
    assert not again.points
    measured = advance(again, window(9 * SECOND + 1)).measurements
    assert [(one.at_ns, one.examples_per_s) for one in measured.old] == [(SECOND, pytest.approx(1_600))]
    assert [one.at_ns for one in measured.recent] == [9 * SECOND + 1]
    assert [sample.cpu_pct.value for sample in measured.samples] == [150.0, None]
    assert [sample.gpu_busy_pct.value for sample in measured.samples] == [None, 60.0]


def stall(at_s: float, since_s: float) -> LaneStalled:
    return LaneStalled(lane="cpu", at_ns=round(at_s * SECOND), since_ns=round(since_s * SECOND))


def suspended(since_s: float, until_s: float) -> Suspended:
    stamps = {"since_ns": round(since_s * SECOND), "at_ns": round(until_s * SECOND)}
    return Suspended(lane="cpu", lasted_s=until_s - since_s, **stamps)


def short(at_s: float, span_s: float = 0.2):
    return window(round(at_s * SECOND), round(span_s * SECOND))


class TestHeartbeat:
    def test_every_event_from_the_lane_is_a_sign_of_life(self):
        for event in (short(7), SliceEnded(at_ns=7 * SECOND, round=1), phase("racing", 7 * SECOND)):
            heartbeat = lane("cpu", stall(5, 1), event).heartbeat
            assert (heartbeat.heard_ns, heartbeat.stalled_since_ns) == (7 * SECOND, None)

    def test_events_about_the_lane_and_reported_stacks_are_none(self):
        stack = StackReported(lane="cpu", at_ns=9 * SECOND, lines=())
        state = lane("cpu", short(1), stall(8, 1), requested(1), tree_sample(), stack)
        assert (state.heartbeat.heard_ns, state.heartbeat.stalled_since_ns) == (SECOND, SECOND)
        assert state.process.stack is stack

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
        assert [mark.text for mark in state.changes.marks] == ["suspended 10 s"]

    def test_the_warm_up_is_timed(self):
        state = lane("cpu", phase("warming up", 5 * SECOND), phase("ready", 12 * SECOND))
        assert state.heartbeat.warm_up_ns == 7 * SECOND

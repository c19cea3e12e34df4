"""What a key press requests of which lanes, and which failures the user has not seen."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.ui import WIDTH, Demo, racing_demo

from tfmon.analysis.analysis import analyse
from tfmon.model.events import LaneEnded, LaneStarted
from tfmon.model.knobs import BATCH_SIZE, PREFETCH
from tfmon.model.lane_events import LaneFailed
from tfmon.ui.render.bars import failure_line
from tfmon.ui.source import (
    Display,
    acknowledged,
    next_values,
    pause_or_resume,
    reachable,
    shared_value,
    to_improve,
    with_failures,
)


@pytest.fixture
def demo() -> Demo:
    demo = Demo().go()
    return demo


def lanes(demo: Demo):
    return demo.session.snapshot().lanes


def test_a_press_requests_the_next_value_of_every_lane_from_what_was_requested_before(demo):
    assert next_values(lanes(demo), BATCH_SIZE, 1) == ({"cpu": 16, "gpu:0": 16}, "")
    assert next_values(lanes(demo), BATCH_SIZE, -1)[0] == {"cpu": 8, "gpu:0": 8}
    assert next_values(lanes(demo), PREFETCH, 1)[0] == {"cpu": 1, "gpu:0": 1}
    demo.ask("cpu", "batch_size", 16)
    assert next_values(lanes(demo), BATCH_SIZE, 1)[0] == {"cpu": 32, "gpu:0": 16}


@pytest.mark.parametrize(
    ("value", "direction", "said"),
    [
        (1, -1, "1; it takes a whole number from 1"),
        (512, 1, "512, and the data has 1000 examples"),
    ],
)
def test_the_end_of_the_range_or_of_the_data_is_said_and_does_not_stop_other_lanes(demo, value, direction, said):
    demo.ask("cpu", "batch_size", value)
    assert next_values(lanes(demo)[:1], BATCH_SIZE, direction) == ({}, f"batch size is already {said}")
    assert next_values(lanes(demo), BATCH_SIZE, -1)[0]["gpu:0"] == 8


def test_a_knob_that_is_no_batch_size_is_not_limited_by_the_data(demo):
    lane = replace(lanes(demo)[0], settings={"width": 2048})
    assert next_values([lane], WIDTH, 1)[0] == {"cpu": 4096}
    assert next_values([], PREFETCH, 1) == ({}, "no lane is training")


def test_any_lane_that_races_is_paused_first_and_only_then_all_go_on(demo):
    demo.enter("cpu", "paused")
    pause, resume = pause_or_resume(lanes(demo))
    assert ([lane.spec.name for lane in pause], resume) == (["gpu:0"], [])
    demo.enter("gpu:0", "paused")
    pause, resume = pause_or_resume(lanes(demo))
    assert (pause, [lane.spec.name for lane in resume]) == ([], ["cpu", "gpu:0"])


def test_advice_is_tried_on_a_lane_that_trains_and_on_a_gpu_first(demo):
    demo.race(10)
    assert to_improve(analyse(demo.session.snapshot()), lanes(demo)) == "gpu:0"
    demo.fail("gpu:0")
    assert to_improve(analyse(demo.session.snapshot()), lanes(demo)) == "cpu"
    assert to_improve(analyse(demo.session.snapshot()), []) is None


def test_values_that_differ_are_both_shown(demo):
    demo.ask("gpu:0", "prefetch", "auto")
    assert shared_value(lanes(demo), PREFETCH) == ("off", "auto")
    demo.apply("gpu:0", "prefetch", "auto")
    assert shared_value(lanes(demo), PREFETCH) == ("off/auto", "")


def test_several_are_counted_and_one_that_trains_again_is_forgotten():
    demo = racing_demo()
    view = with_failures(Display(), demo.session.snapshot(), ())
    for name in demo.names:
        demo.fail(name)
    view = with_failures(view, demo.session.snapshot(), ())
    assert failure_line(view, demo.session.snapshot(), "Esc").startswith("cpu (and 1 more) failed")
    demo.session.accept(LaneStarted(lane="cpu", at_ns=demo.clock(), pid=1, settings={}))
    view = with_failures(view, demo.session.snapshot(), ())
    assert view.unseen == ("gpu:0",)
    view = acknowledged(view)
    assert failure_line(view, demo.session.snapshot(), "Esc") == ""
    assert with_failures(view, demo.session.snapshot(), ()) is view


class TestReachable:
    """Which lanes a knob's key acts on."""

    @pytest.fixture
    def lanes(self):
        demo = Demo().go()
        demo.session.accept(LaneFailed(lane="gpu:0", at_ns=1, kind="out_of_memory", message="out of memory"))
        demo.session.accept(LaneEnded(lane="gpu:0", at_ns=2, exit_code=1, signal=None, requested=False))
        return demo.session.snapshot().lanes

    @pytest.mark.parametrize(
        ("knob", "direction", "focused", "names"),
        [
            (BATCH_SIZE, -1, False, ["cpu", "gpu:0"]),
            (BATCH_SIZE, 1, False, ["cpu"]),
            (PREFETCH, 1, False, ["cpu"]),
            (PREFETCH, 1, True, ["cpu", "gpu:0"]),
        ],
    )
    def test_one_that_ran_out_of_memory_starts_again_with_a_smaller_batch_or_when_it_is_meant(
        self, lanes, knob, direction, focused, names
    ):
        assert [lane.spec.name for lane in reachable(lanes, knob, direction, focused=focused)] == names

    def test_one_whose_process_is_not_gone_yet_waits(self, lanes):
        lanes = [replace(lane, ended=None) for lane in lanes]
        assert [lane.spec.name for lane in reachable(lanes, BATCH_SIZE, -1, focused=True)] == ["cpu"]

from __future__ import annotations

from dataclasses import replace

import pytest
from support.ui import WIDTH, Demo

from tfmon.model.knobs import BATCH_SIZE, PREFETCH
from tfmon.ui.requests import NewValue, next_values, pause_or_resume, shared_value, targets


@pytest.fixture
def demo() -> Demo:
    demo = Demo()
    demo.go()
    return demo


def lanes(demo: Demo):
    return demo.session.snapshot().lanes


def test_a_press_asks_every_lane_for_the_next_value(demo):
    assert next_values(lanes(demo), BATCH_SIZE, 1) == ([NewValue("cpu", 16), NewValue("gpu:0", 16)], "")
    assert next_values(lanes(demo), BATCH_SIZE, -1)[0] == [NewValue("cpu", 8), NewValue("gpu:0", 8)]
    assert next_values(lanes(demo), PREFETCH, 1)[0] == [NewValue("cpu", 1), NewValue("gpu:0", 1)]


def test_a_second_press_goes_on_from_what_was_asked(demo):
    demo.ask("cpu", "batch_size", 16)
    assert next_values(lanes(demo), BATCH_SIZE, 1)[0] == [NewValue("cpu", 32), NewValue("gpu:0", 16)]


def test_the_end_of_the_range_is_said_in_words(demo):
    demo.ask("cpu", "batch_size", 1)
    race_options, stuck = next_values(lanes(demo)[:1], BATCH_SIZE, -1)
    assert race_options == []
    assert stuck == "batch size is already 1; it takes a whole number from 1"


def test_a_batch_never_exceeds_the_data(demo):
    demo.ask("cpu", "batch_size", 512)
    race_options, stuck = next_values(lanes(demo)[:1], BATCH_SIZE, 1)
    assert race_options == []
    assert stuck == "batch size is already 512, and the data has 1000 examples"


def test_a_lane_at_its_end_does_not_stop_the_others(demo):
    demo.ask("cpu", "batch_size", 1)
    assert next_values(lanes(demo), BATCH_SIZE, -1) == ([NewValue("gpu:0", 8)], "")


def test_a_knob_that_is_no_batch_size_is_not_limited_by_the_data(demo):
    asked = replace(lanes(demo)[0], settings={"width": 2048})
    assert next_values([asked], WIDTH, 1)[0] == [NewValue("cpu", 4096)]


def test_no_lane_that_lives_is_said(demo):
    demo.fail("cpu")
    demo.fail("gpu:0")
    assert next_values([lane for lane in lanes(demo) if not lane.over], PREFETCH, 1) == ([], "no lane is training")


def test_any_lane_that_races_is_paused_first_and_only_then_all_go_on(demo):
    demo.enter("cpu", "paused")
    hold, run = pause_or_resume(lanes(demo))
    assert ([lane.spec.name for lane in hold], run) == (["gpu:0"], [])
    demo.enter("gpu:0", "paused")
    hold, run = pause_or_resume(lanes(demo))
    assert (hold, [lane.spec.name for lane in run]) == ([], ["cpu", "gpu:0"])


def test_targets_are_the_focused_lane_or_all(demo):
    assert [lane.spec.name for lane in targets(lanes(demo), None)] == ["cpu", "gpu:0"]
    assert [lane.spec.name for lane in targets(lanes(demo), "gpu:0")] == ["gpu:0"]


def test_values_that_differ_are_both_shown(demo):
    demo.ask("gpu:0", "prefetch", "auto")
    assert shared_value(lanes(demo), PREFETCH) == ("off", "auto")
    demo.apply("gpu:0", "prefetch", "auto")
    assert shared_value(lanes(demo), PREFETCH) == ("off/auto", "")

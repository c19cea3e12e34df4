"""The training loop, driven through its mailbox as a child's inbox does."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tfmon.model.lane_events import SLICE_START, Finished, KnobApplied, KnobRefused, Window
from tfmon.model.lane_state import READY, WARMING_UP
from tfmon.model.requests import Run, RunSlice, SetKnob
from tfmon.trainer.scenario import ScenarioError
from tfmon.trainer.slices import WINDOW_NS
from trainer.running import Numbers, Steps, stopped

pytestmark = [pytest.mark.tensorflow, pytest.mark.trainer]


class UnevenFeatures(Numbers):
    """Named features; every fourth batch is a short one."""

    def data(self) -> Any:
        return {"number": np.arange(1_000, dtype=np.float32)}

    def batches(self, examples: Any, batch_size: int) -> Any:
        return examples.take(4 * batch_size - 3).batch(batch_size).repeat()


class NoSevens(Numbers):
    """No pipeline can be made for a batch of seven."""

    def batches(self, examples: Any, batch_size: int) -> Any:
        if batch_size == 7:
            raise ValueError("not seven")
        return super().batches(examples, batch_size)


class Once(Numbers):
    """Data that end."""

    def batches(self, examples: Any, batch_size: int) -> Any:
        return examples.batch(batch_size)


def beside(window: Window) -> int:
    """Count the steps before a window that are in none: sampled, or under the profiler."""
    return round(window.sampled_examples * window.steps / window.examples)


def check_continuity(windows: Sequence[Window]) -> None:
    """Check that every window begins where the one before ended, or steps in no window, and counts on."""
    for before, after in itertools.pairwise(windows):
        sampled = bool(after.sampled_examples)
        assert (after.at_ns - after.span_ns == before.at_ns) is not sampled
        assert after.at_ns - after.span_ns >= before.at_ns
        assert after.step == before.step + after.steps + beside(after)


def steps_in(window: Window) -> int:
    """Count a window's steps, and those before it that are in none."""
    return window.steps + beside(window)


@pytest.mark.parametrize("steps", [257, 1])
def test_it_finishes_when_the_requested_steps_are_measured_and_no_other_counts(running, steps):
    step = Steps()
    loop = running(step, steps=steps)
    loop.until_ready()
    assert loop.phases == [WARMING_UP, READY] and not loop.windows
    assert (warm_up := len(step.batches)) > 0
    loop.tell(SetKnob(request=1, knob="batch_size", value=20))
    loop.tell(RunSlice(round=1, seconds=3_600.0))
    finished = loop.until_event(Finished)
    first, *rest = loop.windows
    assert SLICE_START in first.marks and first.steps > 0
    assert finished.measured == steps == sum(window.steps for window in rest if not window.marks)
    assert finished.steps == sum(map(steps_in, loop.windows)) == len(step.batches) - warm_up


def test_data_that_end_are_an_error_of_the_scenario(running):
    loop = running(Steps(), Once)
    with pytest.raises(ScenarioError, match="the data ended"):
        loop.until_ready()  # where the machine is busy, the warm-up may be over before
        loop.tell(Run())
        loop.until_event(Finished)


def test_windows_cover_every_step_once(running):
    step = Steps()
    loop = running(step, prefetch="auto")
    loop.until_ready()
    warm_up = len(step.batches)
    loop.tell(Run())
    loop.until_windows(4)
    stopped(loop)
    windows = loop.windows
    check_continuity(windows)
    assert windows[0].step == steps_in(windows[0])
    assert windows[-1].step == len(step.batches) - warm_up
    examples = sum(window.examples + window.sampled_examples for window in windows)
    assert examples == sum(map(len, step.batches[warm_up:]))
    for before, after in itertools.pairwise(windows):
        assert after.loss - before.loss == steps_in(after), "the loss is that of the last step"
    for window in windows:
        assert sum(window.histogram.values()) == window.steps
        assert window.examples == 10 * window.steps
        shares = window.input_ns + window.call_ns + window.sync_ns + window.report_ns
        assert 0 < shares <= window.span_ns
        assert min(window.input_ns, window.call_ns, window.sync_ns, window.report_ns) >= 0
        assert window.longest_ns <= window.span_ns
        assert window.settings == {"batch_size": 10, "prefetch": "auto"}
    assert all(window.span_ns >= WINDOW_NS for window in windows[:-1])


def test_batches_of_different_sizes_are_counted_one_by_one(running):
    sizes: list[int] = []

    def step(batch: Any) -> None:
        sizes.append(len(batch["number"]))

    loop = running(step, UnevenFeatures)
    loop.until_ready()
    warm_up = len(sizes)
    loop.tell(Run())
    loop.until_windows(2)
    stopped(loop)
    assert set(sizes) == {10, 7}
    examples = sum(window.examples + window.sampled_examples for window in loop.windows)
    assert examples == sum(sizes[warm_up:])
    assert loop.windows[0].loss is None, "the step returns none"


def test_a_knob_takes_effect_at_a_step_boundary(running):
    knob, value = "batch_size", 20
    step = Steps()
    loop = running(step)
    loop.until_ready()
    warm_up = len(step.batches)
    loop.tell(Run())
    loop.until_windows(1)
    requested_ns = loop.tell(SetKnob(request=5, knob=knob, value=value))
    applied = loop.until_event(KnobApplied)
    changed = loop.until_event(Window, lambda window: window.at_ns >= applied.at_ns)
    loop.until_windows(1)
    stopped(loop)
    assert (applied.request, applied.knob, applied.value) == (5, knob, value)
    assert applied.at_ns > requested_ns
    assert 0 < applied.gap_ns < applied.at_ns
    assert "knob change" in changed.marks
    assert applied.step == changed.step - changed.steps + 1
    for window in loop.windows:
        in_effect = {"batch_size": 10, "prefetch": "off"}
        if window.step >= applied.step:
            in_effect[knob] = value
        assert window.settings == in_effect
        assert window.examples == window.steps * in_effect["batch_size"]
    sizes = [len(batch) for batch in step.batches[warm_up:]]
    assert set(sizes[: applied.step - 1]) == {10}
    assert set(sizes[applied.step - 1 :]) == {value}
    check_continuity(loop.windows)


def test_requests_at_once_are_applied_in_their_order_and_a_failed_one_leaves_nothing(running):
    step = Steps()
    loop = running(step, NoSevens)
    loop.until_ready()
    loop.tell(Run())
    requests = [("batch_size", 20), ("prefetch", 2), ("batch_size", 7), ("prefetch", 1), ("batch_size", 10)]
    for number, (knob, value) in enumerate(requests, start=1):
        loop.tell(SetKnob(request=number, knob=knob, value=value))
    loop.until_event(KnobApplied, lambda event: event.request == len(requests))
    assert [event.request for event in loop.reporter.of(KnobRefused)] == [3]
    assert [event.request for event in loop.reporter.of(KnobApplied)] == [1, 2, 4, 5]
    loop.until_windows(2)
    stopped(loop)
    last = loop.windows[-1]
    assert last.settings == {"batch_size": 10, "prefetch": 1}
    assert len(step.batches[-1]) == last.examples / last.steps == 10


def test_impossible_requests_are_refused_with_a_reason_and_the_training_goes_on(running):
    loop = running(Steps(), NoSevens)
    loop.until_ready()
    loop.tell(Run())
    cases: list[tuple[str, int | str, str]] = [
        ("batch_size", 1_001, "larger than the data; it can be at most 1000"),
        ("batch_size", 0, "is not possible"),
        ("prefetch", "often", "is not possible"),
        ("colour", 1, "there is no knob 'colour'"),
        ("batch_size", 7, "it could not be made: ValueError: not seven"),
    ]
    for number, (knob, value, reason) in enumerate(cases):
        loop.tell(SetKnob(request=number, knob=knob, value=value))
        refused = loop.until_event(KnobRefused, lambda event, number=number: event.request == number)
        assert (refused.knob, refused.value) == (knob, value)
        assert reason in refused.reason
    assert loop.until_windows(1)[-1].settings == {"batch_size": 10, "prefetch": "off"}
    loop.tell(SetKnob(request=9, knob="batch_size", value=20))
    assert loop.until_event(KnobApplied).request == 9

"""The training loop, driven through its mailbox as a child's inbox does."""

import itertools
import re
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tfmon.model.lane_events import (
    READY,
    SLICE_START,
    WARMING_UP,
    Finished,
    KnobApplied,
    KnobRefused,
    Profiled,
    ProfileFailed,
    Window,
)
from tfmon.model.requests import Run, RunSlice, SetKnob, TakeProfile
from tfmon.trainer import capture
from tfmon.trainer.lane_control import PROFILE
from tfmon.trainer.scenario import ScenarioError
from tfmon.trainer.slices import WINDOW_NS
from tfmon.trainer.step_clock import COMPILING
from trainer.running import Numbers, Steps, stopped

pytestmark = [pytest.mark.tensorflow, pytest.mark.trainer]


class UnevenFeatures(Numbers):
    """Named features; every fourth batch is a short one."""

    def data(self) -> Any:
        return {"number": np.arange(1_000, dtype=np.float32)}

    def batches(self, examples: Any, batch_size: int) -> Any:
        return examples.take(4 * batch_size - 1).batch(batch_size).repeat()


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


def test_it_finishes_when_the_requested_steps_are_measured_and_no_other_counts(running):
    step = Steps()
    loop = running(step, steps=257)
    loop.until_ready()
    assert loop.phases == [WARMING_UP, READY] and not loop.windows
    assert (warm_up := len(step.batches)) > 0
    loop.tell(SetKnob(request=1, knob="batch_size", value=20))
    loop.tell(RunSlice(round=1, seconds=3_600.0))
    finished = loop.until_event(Finished)
    first, *rest = loop.windows
    assert SLICE_START in first.marks and first.steps > 0
    assert finished.measured == 257 == sum(window.steps for window in rest if not window.marks)
    assert finished.steps == sum(map(steps_in, loop.windows)) == len(step.batches) - warm_up


def test_data_that_end_are_an_error_of_the_scenario(running):
    loop = running(Steps(), Once)
    with pytest.raises(ScenarioError, match="the data ended"):
        loop.race()  # on a busy machine, the warm-up may be over before
        loop.until_event(Finished)


def test_windows_cover_every_step_once_but_sampled_ones_that_are_in_none(running):
    step = Steps()
    loop = running(lambda batch: step(batch["number"]), UnevenFeatures, prefetch="auto")
    loop.race(step)
    loop.until(lambda: sum(window.sampled for window in loop.windows) >= 2, "two sampled steps")
    stopped(loop)
    windows = loop.windows
    check_continuity(windows)
    assert windows[0].step == steps_in(windows[0])
    assert windows[-1].step == len(step.batches)
    sizes = [len(batch) for batch in step.batches]
    assert set(sizes) == {10, 9}
    assert sum(window.examples + window.sampled_examples for window in windows) == sum(sizes)
    for before, after in itertools.pairwise(windows):
        assert after.loss - before.loss == steps_in(after), "the loss is that of the last step"
    for window in windows:
        assert sum(window.histogram.values()) == window.steps
        shares = window.input_ns + window.call_ns + window.sync_ns + window.report_ns
        assert 0 < shares <= window.span_ns
        assert min(window.input_ns, window.call_ns, window.sync_ns, window.report_ns) >= 0
        assert window.longest_ns <= window.span_ns
        assert window.settings == {"batch_size": 10, "prefetch": "auto"}
    assert all(window.span_ns >= WINDOW_NS for window in windows[:-1])
    assert next(window.sampled for window in windows if window.sampled_examples) == 0, "the first is dropped"
    sampled = [window for window in windows if window.sampled]
    for window in sampled:
        assert window.sampled == 1 and window.sampled_examples in (10, 9)
        assert window.sampled_call_ns > 0 and window.sampled_tail_ns >= 0
        assert window.sampled_copy_ns is None, "there is no device to copy to"
    first_ns, second_ns = (window.at_ns - window.span_ns for window in sampled[:2])  # when the samples ended
    assert second_ns - first_ns >= 0.9e9, "once a second at most"


def test_a_knob_takes_effect_at_a_step_boundary(running):
    step = Steps()
    loop = running(step)
    loop.race(step)
    loop.until_windows(1)
    requested_ns = loop.tell(SetKnob(request=5, knob="batch_size", value=20))
    applied = loop.until_event(KnobApplied)
    changed = loop.until_event(Window, lambda window: window.at_ns >= applied.at_ns)
    loop.until_windows(1)
    stopped(loop)
    assert (applied.request, applied.knob, applied.value) == (5, "batch_size", 20)
    assert applied.at_ns > requested_ns
    assert 0 < applied.gap_ns < applied.at_ns
    assert "knob change" in changed.marks
    assert applied.step == changed.step - changed.steps + 1
    for window in loop.windows:
        in_effect = 20 if window.step >= applied.step else 10
        assert window.settings == {"batch_size": in_effect, "prefetch": "off"}
        assert window.examples == window.steps * in_effect
    sizes = [len(batch) for batch in step.batches]
    assert set(sizes[: applied.step - 1]) == {10}
    assert set(sizes[applied.step - 1 :]) == {20}
    check_continuity(loop.windows)


def test_impossible_requests_are_refused_with_a_reason_and_the_training_goes_on(running):
    step = Steps()
    loop = running(step, NoSevens)
    loop.race()
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
    at_once = [("batch_size", 20), ("prefetch", 2), ("batch_size", 7), ("prefetch", 1), ("batch_size", 10)]
    for number, (knob, value) in enumerate(at_once, start=10):
        loop.tell(SetKnob(request=number, knob=knob, value=value))
    loop.until_event(KnobApplied, lambda event: event.request == 14)
    assert [event.request for event in loop.reporter.of(KnobApplied)] == [10, 11, 13, 14], "in their order"
    last = loop.until_windows(2)[-1]
    assert last.settings == {"batch_size": 10, "prefetch": 1}
    stopped(loop)
    assert len(step.batches[-1]) == last.examples / last.steps == 10


def test_a_step_that_traces_a_function_is_counted_with_its_cause(running, tf):
    double = tf.function(lambda number, times: number * times)

    def step(batch: Any) -> Any:
        step.done += 1
        return tf.reduce_sum(double(batch, step.done if step.retraces else 2))

    step.done, step.retraces = 0, False
    loop = running(step)
    loop.until_ready()
    step.retraces = True
    loop.tell(Run())
    loop.until(lambda: len(loop.windows) > 5, "some windows")
    first, *_, last = loop.windows
    assert first.traced_steps > 0 and COMPILING in first.marks
    assert COMPILING not in last.marks, "what every window has is usual for this lane"
    assert last.traced_steps >= last.steps - 1 and 0 < last.traced_ns <= last.call_ns
    assert re.search(r"`argument \d+`: \d+ → \d+", last.traced)


def test_a_profile_is_taken_between_two_windows_and_the_lane_trains_on(running, tmp_path, monkeypatch):
    monkeypatch.setattr(capture, "WINDOWS", 10**6)  # a busy machine's calls must not cause a second one
    step = Steps()
    loop = running(step)
    loop.race(step)
    loop.until_windows(1)
    loop.tell(TakeProfile(folder=str(tmp_path), steps=7))
    profiled = loop.until_event(Profiled)
    assert (profiled.folder, profiled.profile.steps) == (str(tmp_path), 7)
    loop.until(lambda: loop.windows[-1].at_ns > profiled.at_ns, "a window after it")
    stopped(loop)
    # The pipeline filled its buffer while the trace was written, so the first window after it is marked.
    (marked,) = [window for window in loop.windows if PROFILE in window.marks]
    assert marked.longest_ns <= marked.span_ns <= marked.at_ns - profiled.at_ns, "the trace is in no window"
    examples = sum(window.examples + window.sampled_examples for window in loop.windows)
    assert examples == sum(map(len, step.batches)), "captured steps are counted, in no window"


def test_where_the_profiler_is_taken_the_share_is_unknown_and_a_profile_is_refused(running, tf, tmp_path):
    tf.profiler.experimental.start(str(tmp_path / "other"))
    try:
        loop = running(lambda _batch: None)
        loop.race()
        loop.tell(TakeProfile(folder=str(tmp_path), steps=7))
        failed = loop.until_event(ProfileFailed)
    finally:
        tf.profiler.experimental.stop(save=False)
    assert "another profile is being taken" in failed.reason
    loop.until(lambda: any(window.at_ns > failed.at_ns for window in loop.windows), "a window after it")
    assert all(window.computing_share is None for window in loop.windows)
    assert loop.windows[0].loss is None, "the step returns none"


class SlowToRead:
    """A loss that takes a while to read, as one on a busy device does."""

    def __call__(self, *_batch: Any) -> Any:
        return self

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        time.sleep(0.004)
        return np.zeros(())


@pytest.mark.parametrize("on", [True, False])
def test_sync_every_step_reads_every_loss(running, on):
    loop = running(SlowToRead(), sync_every_step=on)
    loop.race()
    loop.until_windows(2)
    assert all(window.sync_ns >= 4e6 * (window.steps if on else 1) for window in loop.windows)
    if not on:
        loop.until_event(Window, lambda window: window.sync_ns < 4e6 * window.steps)

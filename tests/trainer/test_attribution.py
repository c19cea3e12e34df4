"""What a running loop says of where the time goes: samples, traces, profiles, and the share that computes."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tfmon.model.lane_events import KnobApplied, Profiled, ProfileFailed, SliceEnded, Window
from tfmon.model.requests import Run, RunSlice, SetKnob, TakeProfile
from tfmon.trainer import capture
from tfmon.trainer.control import PROFILE
from tfmon.trainer.step_clock import COMPILING
from trainer.running import Running, Steps, stopped

pytestmark = [pytest.mark.tensorflow, pytest.mark.trainer]

Start = Callable[..., Running]


def test_a_step_is_sampled_now_and_then_and_has_no_part_in_the_window(running: Start) -> None:
    loop = running(Steps())
    loop.until_ready()
    loop.tell(Run())
    loop.until(lambda: sum(window.sampled for window in loop.windows) >= 2, "two sampled steps")
    assert next(window.sampled for window in loop.windows if window.sampled_examples) == 0, "the first is dropped"
    sampled = [window for window in loop.windows if window.sampled]
    for window in sampled:
        assert window.sampled == 1 and window.sampled_examples == 10
        assert window.sampled_call_ns > 0 and window.sampled_tail_ns >= 0
        assert window.sampled_copy_ns is None, "there is no device to copy to"
    first_ns, second_ns = (window.at_ns - window.span_ns for window in sampled[:2])  # when the samples ended
    assert second_ns - first_ns >= 0.9e9, "once a second at most"


def test_a_step_that_traces_a_function_is_counted_with_its_cause(running: Start, tf: Any) -> None:
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


def test_a_profile_is_taken_between_two_windows_and_the_lane_trains_on(
    running: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture, "WINDOWS", 10**6)  # a busy machine's calls are no reason for a second one
    step = Steps()
    loop = running(step)
    loop.until_ready()
    warm_up = len(step.batches)
    loop.tell(Run())
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
    assert examples == sum(map(len, step.batches[warm_up:])), "captured steps are counted, in no window"


class TestComputingShare:
    def computing(self, tf: Any) -> Any:
        matrix = tf.ones((300, 300))
        return tf.function(lambda batch: tf.reduce_sum(matrix @ (matrix * batch[0])))

    @pytest.mark.slow
    def test_it_is_found_once_for_each_settings(
        self, running: Start, tf: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(capture, "WINDOWS", 10**6)  # a busy machine's calls are no reason for another one
        loop = running(self.computing(tf))
        loop.until_ready()
        loop.tell(Run())
        loop.until_windows(1)

        def steady_with(size: int) -> bool:
            last = loop.windows[-1]
            return last.settings["batch_size"] == size and not last.marks and last.computing_share is not None

        for request, size in enumerate((20, 10, 20), start=1):
            loop.tell(SetKnob(request=request, knob="batch_size", value=size))
            loop.until(partial(steady_with, size), "a steady window")
        stopped(loop)
        assert all(0 < window.computing_share <= 1 for window in loop.windows if not window.marks)
        assert sum(PROFILE in window.marks for window in loop.windows) == 1, "for 20, the first time"

    @pytest.mark.slow
    def test_in_slices_it_is_found_where_a_slice_starts(self, running: Start, tf: Any) -> None:
        loop = running(self.computing(tf))
        loop.until_ready()

        def train_slice(number: int) -> None:
            loop.tell(RunSlice(round=number, seconds=0.5))
            loop.until(lambda: any(end.round == number for end in loop.reporter.of(SliceEnded)), "the slice's end")

        numbers = itertools.count(1)
        train_slice(next(numbers))
        loop.tell(SetKnob(request=1, knob="batch_size", value=20))
        while not loop.reporter.of(KnobApplied):
            train_slice(next(numbers))
        for number in itertools.islice(numbers, 2):
            train_slice(number)
        stopped(loop)
        last = [window for window in loop.windows if window.round == number]
        assert last[-1].settings["batch_size"] == 20 and all(window.computing_share for window in last)
        assert not any(PROFILE in window.marks for window in loop.windows)


def test_where_the_profiler_is_taken_the_share_is_unknown_and_a_profile_is_refused(
    running: Start, tf: Any, tmp_path: Path
) -> None:
    tf.profiler.experimental.start(str(tmp_path / "other"))
    try:
        loop = running(Steps())
        loop.until_ready()
        loop.tell(Run())
        loop.tell(TakeProfile(folder=str(tmp_path), steps=7))
        failed = loop.until_event(ProfileFailed)
    finally:
        tf.profiler.experimental.stop(save=False)
    assert "another profile is being taken" in failed.reason
    loop.until(lambda: any(window.at_ns > failed.at_ns for window in loop.windows), "a window after it")
    assert all(window.computing_share is None for window in loop.windows)


class SlowToRead:
    """A loss that takes a while to read, as one on a busy device does."""

    def __call__(self, *_batch: Any) -> Any:
        return self

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        time.sleep(0.004)
        return np.zeros(())


@pytest.mark.parametrize("on", [True, False])
def test_sync_every_step_reads_every_loss(running: Start, on: bool) -> None:
    loop = running(SlowToRead(), sync_every_step=on)
    loop.until_ready()
    loop.tell(Run())
    loop.until_windows(2)
    assert all(window.sync_ns >= 4e6 * (window.steps if on else 1) for window in loop.windows)
    if not on:
        loop.until_event(Window, lambda window: window.sync_ns < 4e6 * window.steps)

"""Reports of a running loop about its time: samples, traces, profiles, and the computing share."""

import re
import time
from typing import Any

import numpy as np
import pytest

from tfmon.model.lane_events import Profiled, ProfileFailed, Window
from tfmon.model.requests import Run, TakeProfile
from tfmon.trainer import capture
from tfmon.trainer.lane_control import PROFILE
from tfmon.trainer.step_clock import COMPILING
from trainer.running import Steps, stopped

pytestmark = [pytest.mark.tensorflow, pytest.mark.trainer]


def test_a_step_is_sampled_now_and_then_and_has_no_part_in_the_window(running):
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


def test_where_the_profiler_is_taken_the_share_is_unknown_and_a_profile_is_refused(running, tf, tmp_path):
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
def test_sync_every_step_reads_every_loss(running, on):
    loop = running(SlowToRead(), sync_every_step=on)
    loop.until_ready()
    loop.tell(Run())
    loop.until_windows(2)
    assert all(window.sync_ns >= 4e6 * (window.steps if on else 1) for window in loop.windows)
    if not on:
        loop.until_event(Window, lambda window: window.sync_ns < 4e6 * window.steps)

"""The last window of a script's lane: every step is reported."""

from __future__ import annotations

import threading
import time

import pytest

from tfmon.model.codec import decode_event, encode_message
from tfmon.model.lane_events import Window
from tfmon.script.meter import END, Meter
from tfmon.trainer.control import LaneControl
from tfmon.trainer.step_clock import Sampler


class FullPipe:
    """A reporter whose pipe has room only for what must arrive."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.sent: list[Window] = []

    def send(self, event) -> None:
        self.sent.append(decode_event(encode_message(event), "cpu"))

    def offer(self, event, *, later=False) -> bool:
        return False


def new_meter() -> Meter:
    pipe = FullPipe()
    return Meter(LaneControl(pipe, {}, Sampler(), lambda: (None, None)), pipe)


@pytest.fixture
def meter() -> Meter:
    meter = new_meter()
    meter.warm = True
    meter.start_step()
    meter.end_step(steps=5, examples=160)
    return meter


def test_the_last_window_is_sent_though_the_pipe_has_no_room(meter):
    meter.end_stretch()
    assert meter.reporter.sent == []
    meter.send_rest()
    (window,) = meter.reporter.sent
    assert (window.step, window.steps, window.examples) == (5, 5, 160)


def test_steps_in_no_window_are_reported_if_they_were_the_last(meter):
    meter.control.discard_steps()
    meter.send_rest()
    (window,) = meter.reporter.sent
    assert (window.step, window.steps, window.examples, window.sampled_examples) == (5, 0, 0, 160)
    assert window.marks == (END,)


def test_a_step_in_no_window_has_no_time_in_the_next_one(meter):
    meter.control.discard_steps()
    meter.start_step()
    meter.end_step(examples=32)
    meter.clock.count_added(0)
    meter.send_rest()
    (window,) = meter.reporter.sent
    assert (window.step, window.steps, window.examples) == (6, 1, 32)


def test_examples_of_a_window_that_a_pause_cuts_off_are_reported_once(meter):
    meter.control.begin_window(time.monotonic_ns())
    meter.send_rest()
    (window,) = meter.reporter.sent
    assert (window.step, window.steps, window.examples, window.sampled_examples) == (5, 0, 0, 160)


def test_steps_that_are_told_together_are_measured_as_one_by_one():
    alone, together = new_meter(), new_meter()
    began_ns = time.monotonic_ns()
    for meter in (alone, together):
        meter.clock.done = 1  # the first step ends a window
        meter.start_step(began_ns)
    ends_ns, losses = [], [0.5, 0.25, 0.125, 0.0625]
    for number, loss in enumerate(losses):
        alone.end_step(loss=loss, examples=number, input_ns=number * 10)
        ends_ns.append(alone.clock.last_end_ns)
        alone.start_step(ends_ns[-1])
    together.end_steps(ends_ns, loss=losses[-1], examples=6, input_ns=60)
    for meter in (alone, together):
        meter.end_step(loss=0.03, examples=1, ended_ns=ends_ns[-1] + 1_000_000)
        meter.clock.count_added(0)
    one, other = alone.control.window(ends_ns[-1], 0.03), together.control.window(ends_ns[-1], 0.03)
    assert one.histogram == other.histogram
    for name in ("steps", "examples", "step", "input_ns", "call_ns", "longest_ns"):
        assert getattr(one, name) == getattr(other, name), name


@pytest.mark.parametrize(("took_s", "traced", "warm"), [(0.4, 0, False), (6.0, 0, True), (6.0, 1, False)])
def test_one_long_step_that_traced_nothing_is_warm_up_enough(took_s, traced, warm):
    meter, began_ns = new_meter(), time.monotonic_ns() - 10_000_000_000
    meter.start_step(began_ns)
    meter.end_step(ended_ns=began_ns + round(took_s * 1e9))
    meter.clock.traced_steps = traced
    became_ready = []
    meter.ready = lambda: became_ready.append(True)
    meter.end_stretch()
    assert bool(became_ready) == warm


class Started:
    """The loss of steps that were only started: reading it waits until the device has done them."""

    def __init__(self, meter: Meter, step_s: float) -> None:
        self.meter, self.step_s, self.most = meter, step_s, 0

    def __float__(self) -> float:
        steps = self.meter.clock.added
        self.most = max(self.most, steps)
        time.sleep(steps * self.step_s)
        return 0.5


def test_steps_that_are_only_started_have_the_time_that_the_device_takes():
    meter, windows = new_meter(), []
    meter.warm, meter.reporter.offer = True, lambda *events, later=False: windows.append(events[0]) or True
    loss = Started(meter, 0.02)
    meter.start_step()
    while len(windows) < 4:
        meter.end_step(loss=loss, examples=1)
        meter.start_step()
        if len(windows) == 1:
            loss.most = 0
    first, *later = windows
    assert first.steps == 1, "the first step of all is a window"
    assert 2 < loss.most < 12, "no more is started than takes as long as a window"
    for window in later:
        assert window.call_ns > 0.9 * window.span_ns and window.sync_ns < 0.1 * window.span_ns
        assert window.longest_ns == pytest.approx(window.span_ns / window.steps, rel=0.1)
        assert window.longest_ns >= 20_000_000

"""The last window of a script's lane: every step is reported."""

import signal
import threading
import time
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from tfmon.hooks.inspection import may_compute
from tfmon.hooks.meter import BETWEEN, OUTSIDE, VALIDATION, Meter
from tfmon.model.codec import decode_event, encode_message
from tfmon.model.lane_events import KnobApplied, Window
from tfmon.model.requests import SetKnob
from tfmon.model.windows import Measurements
from tfmon.system import lane_clock
from tfmon.trainer.lane_control import SAMPLED, LaneControl
from tfmon.trainer.step_clock import Sampler


class FullPipe:
    """A reporter whose pipe has room only for what must arrive."""

    lock = threading.RLock()
    offer = staticmethod(lambda *_events, later=False: False)

    def __init__(self) -> None:
        self.sent: list[Window] = []

    def send(self, event) -> None:
        self.sent.append(decode_event(encode_message(event), "cpu"))


def new_meter() -> Meter:
    pipe = FullPipe()
    return Meter(LaneControl(pipe, {}, Sampler(), lambda: (None, None)), pipe)


def test_a_step_in_no_window_has_no_time_in_the_next_one_which_is_sent_though_the_pipe_has_no_room():
    meter = new_meter()
    meter.warm = True
    meter.start_step()
    meter.end_step(steps=5, examples=160)
    meter.control.discard_steps()
    meter.start_step()
    meter.end_step(examples=32)
    meter.clock.count_added(0)
    meter.send_rest()
    (window,) = meter.reporter.sent
    assert (window.step, window.steps, window.examples) == (6, 1, 32)


def test_a_wait_after_the_last_step_is_in_no_window():
    """Such as for freeing the last iterator of `fit`: the window would have more input than time."""
    meter = new_meter()
    meter.warm = True
    meter.start_step()
    meter.end_step(examples=32, input_ns=5)
    meter.waited(1_000_000_000)
    meter.stop_clock()
    meter.send_rest()
    (window,) = meter.reporter.sent
    assert (window.steps, window.examples, window.input_ns) == (1, 32, 5)
    assert window.left_out_ns.keys() == {OUTSIDE}


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
    meter.ready = Mock()
    meter.end_stretch()
    assert meter.ready.called == warm


class Time:
    """The machine's clock, and the windows that a meter sends."""

    def __init__(self, monkeypatch) -> None:
        self.now_ns, self.measured, self.windows = 1_000_000_000, Measurements(), []
        monkeypatch.setattr(lane_clock, "time", self)
        self.meter = new_meter()
        self.meter.warm = self.meter.samples_steps = True
        self.meter.reporter.offer = self.take
        self.meter.reporter.send = self.take

    def monotonic_ns(self) -> int:
        return self.now_ns

    def take(self, event, *_events, later=False) -> bool:
        self.measured.add(event)
        self.windows.append(event)
        return True

    def passes(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)

    def step(self, wait_s: float = 0.0) -> None:
        self.meter.start_clock()
        self.passes(wait_s)
        self.meter.start_step()
        self.passes(0.01)
        self.meter.end_step(examples=1)


@pytest.fixture
def clock(monkeypatch) -> Time:
    return Time(monkeypatch)


def discarded_s(clock: Time) -> dict[str, float]:
    clock.meter.send_rest()
    measured = clock.measured
    assert measured.unaccounted_ns == 0
    assert measured.steady.span_ns + sum(measured.discarded_ns.values()) == measured.span_ns
    return {reason: time_ns / 1e9 for reason, time_ns in measured.discarded_ns.items()}


class Started:
    """The loss of steps that were only started: reading it takes the time of the device for all of them."""

    def __init__(self, clock: Time, step_s: float) -> None:
        self.clock, self.step_s, self.most = clock, step_s, 0

    def __float__(self) -> float:
        steps = self.clock.meter.clock.added
        self.most = max(self.most, steps)
        self.clock.passes(steps * self.step_s)
        return 0.5


def test_steps_that_are_only_started_have_the_time_that_the_device_takes(clock):
    meter, windows = clock.meter, clock.windows
    meter.samples_steps = False
    loss = Started(clock, 0.02)
    meter.start_step()
    while len(windows) < 4:
        clock.passes(0.0001)
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


def test_no_epoch_begins_with_a_sampled_step_which_would_hide_what_it_waits_for(clock):
    for _ in range(5):
        for number in range(200):
            clock.step(wait_s=0.0 if number else 0.5)
        clock.meter.stop_clock(BETWEEN)
        clock.passes(1.0)
    found = discarded_s(clock)
    assert found == pytest.approx({BETWEEN: 4.0, SAMPLED: 0.01 * clock.measured.steady.sampled})
    assert clock.measured.steady.sampled >= 4
    assert clock.measured.steady.span_ns / 1e9 == pytest.approx(4 * 0.5 + 5 * 2.0 - found[SAMPLED])


def test_a_sampled_step_that_finds_the_end_of_the_data_is_no_sample_of_the_next_epoch(clock):
    meter, applied = clock.meter, []
    meter.control.settings["prefetch"] = 1
    meter.reporter.send = lambda event: (
        applied.append(event) if isinstance(event, KnobApplied) else clock.take(event)
    )
    clock.step()
    while not meter._sampling:
        meter.cancel_step()
        clock.step()
        meter.start_step()
    meter.cancel_step()
    meter.stop_clock(VALIDATION)
    clock.passes(1.0)
    meter.control.knob_changed(SetKnob(request=1, knob="prefetch", value=1))
    steps, sampled = meter.clock.done, clock.measured.steady.sampled
    clock.step()
    assert [event.step for event in applied] == [steps + 1], "the first step with the value"
    meter.stop_clock(BETWEEN)
    clock.passes(1.0)
    clock.step()
    assert clock.measured.steady.sampled == sampled
    found = discarded_s(clock)
    assert (found[VALIDATION], found[BETWEEN]) == (1.0, 1.0)


def test_what_passes_between_steps_counts_for_what_it_is(clock):
    clock.step()
    clock.meter.stop_clock(BETWEEN)
    clock.passes(1.0)
    before = clock.meter.passes("callback Saver")
    clock.passes(2.0)
    inner = clock.meter.passes("evaluate")
    clock.passes(4.0)
    assert (clock.meter.passes(inner), clock.meter.passes(before)) == ("evaluate", "callback Saver")
    clock.passes(8.0)
    clock.step()
    clock.meter.stop_clock()
    clock.passes(16.0)
    assert discarded_s(clock) == pytest.approx({BETWEEN: 9.0, "callback Saver": 2.0, "evaluate": 4.0})


def test_a_step_that_is_known_late_begins_with_its_first_batch(clock):
    clock.step()
    clock.meter.stop_clock(BETWEEN)
    clock.passes(1.0)
    clock.meter.passes(VALIDATION)  # the batch may be read to look at the model
    began_ns = clock.now_ns
    clock.passes(2.0)
    clock.meter.start_clock(began_ns)
    clock.meter.start_step(began_ns)
    clock.meter.end_step(examples=1)
    assert discarded_s(clock) == pytest.approx({BETWEEN: 1.0})


def test_an_iterator_that_is_freed_after_the_end_of_a_step_is_no_wait_of_it(clock):
    meter = clock.meter
    meter.samples_steps = False
    clock.step()
    for after_it in (True, False):
        meter.start_step()
        clock.passes(0.1)
        ended_ns = clock.now_ns
        clock.passes(0.3)
        meter.waited(300_000_000)
        meter.end_step(examples=1, ended_ns=ended_ns if after_it else None)
    assert discarded_s(clock) == pytest.approx({OUTSIDE: 0.3})
    steady = clock.measured.steady
    assert (steady.input_ns / 1e9, steady.call_ns / 1e9) == pytest.approx((0.3, 0.2 + 0.01))


def test_a_wait_in_a_graph_is_never_longer_than_the_call_that_contains_it(clock):
    """The clock of a graph goes on when the lane's stands still."""
    waited_ns = 0
    clock.meter.samples_steps = False
    clock.meter.feed = SimpleNamespace(totals=lambda: (waited_ns, 0), waits_ns=lambda: waited_ns)
    clock.step()
    clock.meter.start_step()
    waited_ns += 7_000_000
    clock.passes(0.001)
    clock.meter.end_step(examples=32)
    clock.meter.end_stretch()
    clock.meter.send_rest()
    last = clock.windows[-1]
    assert (last.input_ns, last.call_ns, last.span_ns, last.implausible()) == (1_000_000, 0, 1_000_000, "")


def test_tfmon_computes_nothing_of_its_own_while_a_timer_sends_signals():
    own = signal.setitimer(signal.ITIMER_REAL, 0)  # the timer of pytest-timeout
    try:
        assert may_compute()
        signal.setitimer(signal.ITIMER_VIRTUAL, 1000)
        assert not may_compute()
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        assert may_compute()
    finally:
        signal.setitimer(signal.ITIMER_REAL, *own)

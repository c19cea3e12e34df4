"""The last words of a script's lane: no step is left untold."""

from __future__ import annotations

import time

import pytest

from tfmon.model.lane_events import Window
from tfmon.model.wire import decode_event, encode
from tfmon.script.meter import END, Meter


class FullPipe:
    """A teller whose pipe has no room but for what must arrive."""

    def __init__(self) -> None:
        self.sent: list[Window] = []

    def send(self, event) -> None:
        self.sent.append(decode_event(encode(event), "cpu"))

    def offer(self, event) -> bool:
        return False


@pytest.fixture
def teller() -> FullPipe:
    return FullPipe()


@pytest.fixture
def meter(teller) -> Meter:
    meter = Meter("cpu", teller)
    meter.warm = True
    meter.begin()
    meter.end(time.monotonic_ns(), 5, None, 160, 0, None)
    return meter


def test_the_last_window_goes_out_though_the_pipe_has_no_room(meter, teller):
    meter.count()
    assert not meter.close(time.monotonic_ns(), None, {}, None)
    meter.end_all({}, None)
    (window,) = teller.sent
    assert (window.step, window.steps, window.examples) == (5, 5, 160)


def test_steps_in_no_window_are_told_where_they_were_the_last(meter, teller):
    meter.samples.steps, meter.samples.examples = 1, 160
    meter.leave_out(time.monotonic_ns())
    meter.end_all({}, None)
    (window,) = teller.sent
    assert (window.step, window.steps, window.examples, window.sampled_examples) == (5, 0, 0, 160)
    assert window.marks == (END,)


def test_where_all_was_told_nothing_more_is(meter, teller):
    meter.leave_out(time.monotonic_ns())
    meter.end_all({}, None)
    assert teller.sent == []

"""What is written to the terminal is counted, and a frame waits until the one before is taken."""

from __future__ import annotations

import io

import pytest

from tfmon.ui.textual_compat import RATE_S, ByteRate, Output


class Free:
    """Counts calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1


def test_a_frame_waits_for_the_one_before_and_is_asked_for_once():
    free = Free()
    output = Output(io.StringIO(), free)
    assert output.may_draw()
    output.expect()
    assert not output.may_draw()
    assert not output.may_draw()
    output.write("frame")
    assert not output.may_draw(), "written, but not taken"
    output.flush()
    assert output.may_draw()
    assert free.calls == 1


def test_a_frame_that_nobody_wanted_meanwhile_is_not_asked_for():
    free = Free()
    output = Output(io.StringIO(), free)
    output.expect()
    output.write("frame")
    output.flush()
    assert free.calls == 0


def test_bytes_are_counted_as_the_terminal_gets_them():
    file = io.StringIO()
    output = Output(file, Free())
    output.write("abc")
    output.write("⣿─")
    assert output.sent_bytes == 3 + 6
    assert file.getvalue() == "abc⣿─"


def test_a_rate_is_that_of_the_last_seconds_and_not_known_at_first():
    now = [0.0]
    rate = ByteRate(lambda: now[0])
    told = []
    for second in range(30):
        now[0] = float(second)
        told.append(rate.of(1_000 * second if second < 15 else 15_000))
    assert told[: int(RATE_S / 2)] == [None] * int(RATE_S / 2)
    assert told[int(RATE_S)] == pytest.approx(1_000)
    assert told[-1] == 0

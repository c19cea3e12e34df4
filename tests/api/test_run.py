"""The race without a screen: it ends with its lanes or at a signal, and always closes the program."""

import io
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from support.events import SECOND
from support.verdicts import ended, lane
from support.waiting import PATIENCE_S, wait_for

from tfmon.analysis.analysis import analyse, outlook, speeds
from tfmon.api import run_base
from tfmon.model.lane_events import RACING
from tfmon.model.lane_state import LaneState
from tfmon.model.race import Race
from tfmon.model.session import Snapshot
from tfmon.model.spec import LaneSpec
from tfmon.model.windows import LaneWindow, Measurements


class Run(run_base.Run):
    """A run without lanes that is over after some looks; `begin` calls a function of the test."""

    def __init__(self, on_begin: Callable[[], object] = lambda: None, looks: int = 1) -> None:
        self.on_begin, self.looks, self.closed = on_begin, looks, 0

    def begin(self) -> None:
        self.on_begin()

    def join(self, timeout_s: float) -> bool:
        time.sleep(timeout_s)
        self.looks -= 1
        return self.looks < 0

    def line(self) -> str:
        return "cpu: racing 5 s"

    def outcome(self, interrupted: str, *, as_json: bool) -> tuple[object, int]:
        return self.closed, 0

    def close(self, reason: str = "") -> None:
        self.closed += 1


race = run_base.run_until_over


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(run_base, "POLL_S", 0.001)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_it_and_is_named_and_the_handlers_of_before_are_back(name):
    before = [signal.getsignal(number) for number in run_base.SIGNALS]
    program = Run(lambda: os.kill(os.getpid(), getattr(signal, name)), looks=10**9)
    assert race(program) == f"interrupted by {name}"
    assert program.closed == 1
    assert [signal.getsignal(number) for number in run_base.SIGNALS] == before


def test_a_second_signal_ends_at_once_what_the_end_waits_for():
    killed = threading.Event()

    class Slow(Run):
        def close(self, reason: str = "") -> None:
            os.kill(os.getpid(), signal.SIGINT)
            assert killed.wait(PATIENCE_S)

    slow = Slow(lambda: os.kill(os.getpid(), signal.SIGINT), looks=10**9)
    slow.end_now = killed.set
    assert race(slow) == "interrupted by SIGINT"


def test_a_hangup_ends_it_where_what_it_does_dies():
    with run_base.ended(Run(), hangup=lambda: 1 // 0) as interrupted:
        os.kill(os.getpid(), signal.SIGHUP)
        wait_for(lambda: interrupted.wait(0), what="the signal counts")
    assert interrupted.reason == "interrupted by SIGHUP"


def test_a_start_that_fails_still_closes_the_program_and_restores_the_handlers():
    before = [signal.getsignal(number) for number in run_base.SIGNALS]
    program = Run(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        race(program)
    assert program.closed == 1
    assert [signal.getsignal(number) for number in run_base.SIGNALS] == before


def test_progress_is_told_on_a_terminal_alone(monkeypatch):
    terminal, log = io.StringIO(), io.StringIO()
    terminal.isatty = lambda: True
    for stderr in (terminal, log):
        monkeypatch.setattr("sys.stderr", stderr)
        race(Run())
    assert "cpu: racing 5 s" in terminal.getvalue() and terminal.getvalue().endswith("\r\x1b[K")
    assert log.getvalue() == ""


def test_progress_has_the_speed_of_a_lane_or_its_phase():
    measured = LaneWindow(at_ns=SECOND, span_ns=SECOND, examples=2_500, steps=250)
    for points, told in (((), "cpu: racing 5 s"), ((measured,), "cpu: 2 500 examples/s")):
        state = LaneState(LaneSpec("cpu", name="cpu"), phase=RACING, measurements=Measurements(recent=points))
        assert speeds(Snapshot(5 * SECOND, Race(), (state,))).startswith(told)


@pytest.mark.parametrize(
    ("limits", "faster", "scatter", "told"),
    [
        ({"seconds": 40.0}, 1.1, 0.3, r"   0:16 left   an answer in about \d+ (s|min)"),
        ({"seconds": 40.0}, 1.2, 0.001, r"   0:16 left   there is an answer"),
        ({"until_ci": 0.05}, 1.1, 0.3, r"   ±5 % in about \d+ (s|min)"),
        ({}, 1.1, 0.3, r"   an answer in about \d+ (s|min)"),
    ],
)
def test_progress_says_how_long_the_race_and_an_answer_still_take(limits, faster, scatter, told):
    speeds = [100 * faster * (1 + scatter * (at // 2 % 2 - 0.5)) for at in range(12)]
    over = ended(lane("fast", speeds), lane("slow", [100.0] * 12), interval="fixed", **limits)
    racing = tuple(replace(one, phase=RACING) for one in over.lanes)
    assert re.fullmatch(told, outlook(analyse(replace(over, at_ns=24 * SECOND, lanes=racing))))

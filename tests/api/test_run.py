"""The race without a screen: it ends with its lanes or at a signal, and always closes the program."""

from __future__ import annotations

import io
import os
import re
import signal
import threading
from dataclasses import dataclass, field, replace

import pytest
from support.verdicts import ended, lane
from support.waiting import PATIENCE_S, wait_for

from tfmon.analysis.analysis import analyse
from tfmon.analysis.progress import outlook
from tfmon.api import run_base
from tfmon.api.program import Program as RealProgram
from tfmon.model.lane_state import RACING, LaneState
from tfmon.model.race import Race
from tfmon.model.session import Snapshot
from tfmon.model.spec import LaneSpec
from tfmon.model.windows import LaneWindow, Measurements

SECOND = 1_000_000_000


@dataclass
class Lanes:
    """Lanes that are over after some looks."""

    looks: int = 1
    suspension: object = None

    @property
    def running(self) -> Lanes:
        return self

    @property
    def all_over(self) -> bool:
        self.looks -= 1
        return self.looks < 0


@dataclass
class Program(RealProgram):
    """A program without children; `begin` calls a function of the test."""

    on_begin: object = None
    lanes: Lanes = field(default_factory=Lanes)
    closed: int = 0
    points: tuple[LaneWindow, ...] = ()

    trains_command: bool = False
    _analysis: object = None

    @property
    def session(self):
        return self

    def snapshot(self) -> Snapshot:
        lane = LaneState(LaneSpec("cpu", name="cpu"), phase=RACING, measurements=Measurements(recent=self.points))
        return Snapshot(5 * SECOND, Race(), (lane,))

    def begin(self) -> None:
        if self.on_begin is not None:
            self.on_begin()

    def close(self, interrupted: str = "") -> None:
        self.closed += 1
        self.interrupted = interrupted


def race(program: Program) -> str:
    return run_base.run_until_over(program)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(run_base, "POLL_S", 0.001)


def test_it_ends_when_every_lane_has_ended():
    program = Program(lanes=Lanes(looks=3))
    assert (race(program), program.closed) == ("", 1)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_it_and_is_named_and_the_handlers_of_before_are_back(name):
    before = [signal.getsignal(number) for number in run_base.SIGNALS]
    program = Program(lambda: os.kill(os.getpid(), getattr(signal, name)), Lanes(looks=10**9))
    assert race(program) == f"interrupted by {name}"
    assert program.closed == 1
    assert [signal.getsignal(number) for number in run_base.SIGNALS] == before


def test_a_second_signal_ends_at_once_what_the_end_waits_for():
    killed = threading.Event()

    class Slow(Program):
        def close(self, interrupted: str = "") -> None:
            os.kill(os.getpid(), signal.SIGINT)
            assert killed.wait(PATIENCE_S)

    slow = Slow(lambda: os.kill(os.getpid(), signal.SIGINT), Lanes(looks=10**9))
    slow.lanes.end_now = killed.set
    assert race(slow) == "interrupted by SIGINT"


def test_a_hangup_ends_it_where_what_it_does_dies():
    with run_base.ended(Program(), hangup=lambda: 1 // 0) as interrupted:
        os.kill(os.getpid(), signal.SIGHUP)
        wait_for(lambda: interrupted.wait(0), what="the signal counts")
    assert interrupted.reason == "interrupted by SIGHUP"


def test_a_start_that_fails_still_closes_the_program_and_restores_the_handlers():
    before = [signal.getsignal(number) for number in run_base.SIGNALS]
    program = Program(on_begin=lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        race(program)
    assert program.closed == 1
    assert [signal.getsignal(number) for number in run_base.SIGNALS] == before


def test_progress_is_told_on_a_terminal_alone(monkeypatch):
    measured = (LaneWindow(at_ns=SECOND, span_ns=SECOND, examples=2_500, steps=250),)
    for points, told in (((), "cpu: racing 5 s"), (measured, "cpu: 2 500 examples/s")):
        terminal = io.StringIO()
        terminal.isatty = lambda: True
        monkeypatch.setattr("sys.stderr", terminal)
        race(Program(points=points))
        assert told in terminal.getvalue()
        assert terminal.getvalue().endswith("\r\x1b[K")
    log = io.StringIO()
    monkeypatch.setattr("sys.stderr", log)
    race(Program())
    assert log.getvalue() == ""


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

"""The race without a screen: it ends with its lanes or at a signal, and always closes the program."""

from __future__ import annotations

import io
import os
import signal
from dataclasses import dataclass, field

import pytest

from tfmon.model.lane_state import RACING, LaneState
from tfmon.model.lane_statistics import Point
from tfmon.model.race import Machine, Race
from tfmon.model.session import Snapshot
from tfmon.model.spec import LaneSpec
from tfmon.runner import headless

SECOND = 1_000_000_000


@dataclass
class Lanes:
    """Lanes that are over after some looks."""

    looks: int = 1
    suspension: object = None

    @property
    def all_over(self) -> bool:
        self.looks -= 1
        return self.looks < 0


@dataclass
class Program:
    """A program without children; `begin` does what the test wants."""

    on_begin: object = None
    lanes: Lanes = field(default_factory=Lanes)
    closed: int = 0
    points: tuple[Point, ...] = ()

    @property
    def session(self):
        return self

    def snapshot(self) -> Snapshot:
        lane = LaneState(LaneSpec("cpu", name="cpu"), phase=RACING, points=self.points)
        return Snapshot(5 * SECOND, Machine(), Race(), (lane,))

    def begin(self, _plan) -> None:
        if self.on_begin is not None:
            self.on_begin()

    def close(self, interrupted: str = "") -> None:
        self.closed += 1
        self.interrupted = interrupted


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(headless, "POLL_S", 0.001)


def test_it_ends_when_every_lane_has_ended():
    program = Program(lanes=Lanes(looks=3))
    assert (headless.run(program, None), program.closed) == ("", 1)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_it_and_is_named_and_the_handlers_of_before_are_back(name):
    before = [signal.getsignal(number) for number in headless.SIGNALS]
    program = Program(lambda: os.kill(os.getpid(), getattr(signal, name)), Lanes(looks=10**9))
    assert headless.run(program, None) == f"interrupted by {name}"
    assert program.closed == 1
    assert [signal.getsignal(number) for number in headless.SIGNALS] == before


def test_a_start_that_fails_still_closes_the_program_and_restores_the_handlers():
    before = [signal.getsignal(number) for number in headless.SIGNALS]
    program = Program(on_begin=lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        headless.run(program, None)
    assert program.closed == 1
    assert [signal.getsignal(number) for number in headless.SIGNALS] == before


def test_progress_is_told_on_a_terminal_alone(monkeypatch):
    measured = (Point(SECOND, SECOND, 2_500, 250, True),)
    for points, told in (((), "cpu: racing 5 s"), (measured, "cpu: 2 500 examples/s")):
        terminal = io.StringIO()
        terminal.isatty = lambda: True
        monkeypatch.setattr("sys.stderr", terminal)
        headless.run(Program(points=points), None)
        assert told in terminal.getvalue()
        assert terminal.getvalue().endswith("\r\x1b[K")
    log = io.StringIO()
    monkeypatch.setattr("sys.stderr", log)
    headless.run(Program(), None)
    assert log.getvalue() == ""

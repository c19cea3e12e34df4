"""Fresh processes: a spare worker that has loaded TensorFlow and waits, and when lanes get other processes.

Two equal processes always differ in speed because of their memory layout; rounds do not average this, only new
processes do. They are not forked from a loaded process, because they would share its memory layout.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tfmon.lanes.plan import BASE, LanePlan
from tfmon.lanes.process import LaneProcess
from tfmon.model.events import Event, LaneEnded
from tfmon.model.lane_events import Hello, Prepared
from tfmon.model.requests import Prepare

Start = Callable[[str, Path, "dict[str, str | None]"], LaneProcess]


class SpareWorker:
    """Keeps one process ready for the next lane to start. A race with fresh processes has one for each lane.

    It only runs while no lane trains, until it is ready. Otherwise it is suspended.

    Thread: one at a time; the caller holds the lock of the lanes.
    """

    def __init__(self, start: Start, *, keep: bool) -> None:
        """Start processes by `start`, but only if `keep`."""
        self._start = start
        self._keep = keep
        self._failed = False
        self._python: Path | None = None
        self._ready = False
        self._yields = False
        self._suspended = False
        self.process: LaneProcess | None = None
        self.hello: Hello | None = None
        """The first event of the latest process, which its lane needs too."""

    @property
    def ready(self) -> bool:
        """True once it has loaded TensorFlow."""
        return self.process is not None and self._ready

    @property
    def loading(self) -> bool:
        """True while it needs more time."""
        return self.process is not None and not self._ready

    def prepare(self, python: Path, *, quiet: bool, once: bool = False) -> None:
        """Start a process unless there is one; with `quiet` it is suspended at once.

        `once` starts one even if none is kept. It loads at the usual priority, because it is due soon and loads
        only while no lane trains; one that loads at the lowest is replaced.
        """
        if once and self._yields and self.loading and self.process is not None:
            self.process.kill(signal.SIGKILL)
            self.process = None
        if self.process is not None or self._failed or not (self._keep or once):
            return
        self.hello, self._ready, self._suspended = None, False, False
        try:
            self.process = self._start("", python, BASE)
        except OSError:
            self._keep, self._failed = False, True
            return
        self._python, self._yields = python, not once
        self.process.send(Prepare(yielding=not once))
        if quiet:
            self.suspend()

    def suspend(self) -> None:
        """Suspend it: a lane trains."""
        if self.process is not None and not self._suspended:
            self._suspended = True
            self.process.suspend()

    def continue_(self) -> None:
        """Let it load on, if there is anything left to load."""
        if self.process is not None and self._suspended and not self._ready:
            self._suspended = False
            self.process.continue_()

    def take(self, lane: LanePlan, python: Path) -> LaneProcess | None:
        """Return the process for a lane, or `None` if it does not exist or fit."""
        process, self.process = self.process, None
        if process is None:
            return None
        unset = any(value is None and key in os.environ for key, value in lane.environment.items())
        process.continue_()
        if process.ended or unset or python != self._python:
            process.kill(signal.SIGKILL)
            return None
        process.assign(lane.spec.name)
        return process

    def dismiss(self) -> LaneProcess | None:
        """Keep no spare from now on; return the process, which the caller ends."""
        process, self.process = self.process, None
        self._keep, self._failed = False, True
        return process

    def hear(self, event: Event) -> None:
        """Take an event of the process before it belongs to a lane."""
        match event:
            case Hello():
                self.hello = event
            case Prepared():
                self._ready = True
                self.suspend()
            case LaneEnded():
                # Do not try again: what ended it would end the next one.
                self.process, self._keep, self._failed = None, False, True


FRESH_EVERY_S = 20.0
"""Lifetime of processes before fresh ones replace them. A restart takes about 3 s without measurement."""
PREPARE_S = 10.0
"""Spare workers are started this long before, and load between the rounds."""
PATIENCE_S = 15.0
"""Time that fresh processes wait for spare workers that still load."""
LEAST_ROUNDS = 5
"""Processes race for at least this many rounds before fresh ones replace them: fewer give no information."""
LEAST_LEFT_S = 10.0
"""Fresh processes that would race for less than this are not started."""


class Renewal:
    """Tells when the processes of one race are due to be replaced. Thread: the caller holds the lanes' lock."""

    def __init__(
        self,
        every_s: float | None = None,
        seconds: float | None = None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Renew every `every_s` seconds, never for None, in a race of `seconds`, endless for None."""
        self.every_s = every_s
        self._seconds = seconds
        self._clock_ns = clock_ns
        self._race_since_ns: int | None = None
        self._since_ns: int | None = None

    def due(self, later_s: float = 0.0) -> bool:
        """Return whether the processes will have raced long enough in `later_s`. Called between two rounds."""
        if self.every_s is None:
            return False
        now_ns = self._clock_ns()
        self._race_since_ns = self._race_since_ns or now_ns
        self._since_ns = self._since_ns or now_ns
        then_ns = now_ns + round(later_s * 1e9)
        if self._seconds is not None and self._seconds - (then_ns - self._race_since_ns) / 1e9 < LEAST_LEFT_S:
            return False
        return then_ns - self._since_ns >= self.every_s * 1e9

    def begin(self) -> None:
        """Record that the processes are replaced; the next ones race from the next call of `due` on."""
        self._since_ns = None

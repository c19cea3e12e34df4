"""A spare child: it has loaded TensorFlow and waits, so that the next lane to start need not."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Mapping
from pathlib import Path

from tfmon.lanes.plan import LanePlan
from tfmon.lanes.process import LaneProcess, ProcessLauncher, Sink
from tfmon.lanes.reader import PipeReader
from tfmon.model.events import Event, LaneEnded
from tfmon.model.lane_events import Hello, Prepared
from tfmon.model.wire import Prepare

BASE: dict[str, str | None] = {"PYTHONUNBUFFERED": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""What a spare is started with. It touches no device before it is a lane, so all else can be set then: CUDA reads
its variables when it is initialised, and TensorFlow when it makes the device."""


class Spare:
    """Keeps one child ready for whatever lane comes next.

    It runs only while no lane trains, and not at all once it is ready: until then it is frozen and thawed.
    Thread: one at a time; the caller holds `lock`.
    """

    def __init__(self, starter: ProcessLauncher, pump: PipeReader, script: Path, lock: threading.RLock) -> None:
        self._starter = starter
        self._pump = pump
        self._lock = lock
        self._script = script
        self._child: LaneProcess | None = None
        self._python: Path | None = None
        self.hello: Hello | None = None
        """The first words of the latest child, which its lane has to hear, too."""
        self._ready = False
        self._failed = False
        self._frozen = False

    @property
    def child(self) -> LaneProcess | None:
        """The child; None while there is none."""
        return self._child

    @property
    def loading(self) -> bool:
        """True while it needs more time."""
        return self._child is not None and not self._ready

    def prepare(self, python: Path, *, quiet: bool) -> None:
        """Start a child unless there is one; it waits at once where it has to be quiet."""
        if self._child is not None or self._failed:
            return
        self.hello, self._ready, self._frozen = None, False, False
        try:
            self._child = self._starter(LaneProcess, "", python, BASE, self._hear, self._script)
        except OSError:
            self._failed = True
            return
        self._python = python
        self._child.send(Prepare())
        self._pump.watch(self._child)
        if quiet:
            self.rest()

    def rest(self) -> None:
        """Stand still: a lane is measured."""
        if self._child is not None and not self._frozen:
            self._frozen = True
            self._child.freeze()

    def go_on(self) -> None:
        """Load on, if there is anything left to load."""
        if self._child is not None and self._frozen and not self._ready:
            self._frozen = False
            self._child.thaw()

    def take(self, lane: LanePlan, python: Path, sink: Sink) -> LaneProcess | None:
        """Hand the child over to a lane; None if there is none, or it does not fit."""
        child, self._child = self._child, None
        if child is None:
            return None
        unset = any(value is None and key in os.environ for key, value in lane.environment.items())
        if child.ended or unset or python != self._python:
            self._drop(child)
            return None
        child.adopt(lane.spec.name, sink)
        child.thaw()
        return child

    def dismiss(self) -> LaneProcess | None:
        """Let go of the child, which the caller ends, and keep none from now on."""
        child, self._child = self._child, None
        self._failed = True
        if child is not None:
            child.mute()
        return child

    def _drop(self, child: LaneProcess) -> None:
        child.mute()
        child.thaw()
        with contextlib.suppress(OSError):
            child.kill(signal.SIGKILL)

    def _hear(self, event: Event) -> None:
        """Take note of what the child says while it is nobody's. Thread: the pump's."""
        with self._lock:
            match event:
                case Hello():
                    self.hello = event
                case Prepared():
                    self._ready = True
                    self.rest()
                case LaneEnded():
                    # Not tried again: what ended it would end the next one.
                    self._child, self._failed = None, True


def settled(environment: Mapping[str, str | None]) -> dict[str, str]:
    """Return what a spare has to set to be a lane with this environment."""
    return {key: value for key, value in environment.items() if value is not None}

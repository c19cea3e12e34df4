"""The lanes of a race as the place of a series."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

from tfmon.model.event_base import Event
from tfmon.model.knobs import KnobValue, Settings, find
from tfmon.model.lane_events import PAUSED, READY, SliceEnded
from tfmon.model.lane_state import ABSENT, FAILED, PHASES, LaneState
from tfmon.model.ports import Controls
from tfmon.model.readings import HostSample
from tfmon.model.series import SeriesState, SeriesStep
from tfmon.model.session import Session, Snapshot
from tfmon.series.engine import RefusedError, Station, StoppedError

PATIENCE_S = 120.0
TIMES_WINDOW = 10
"""In windows: long steps of other lanes can delay a slice."""
POLL_S = 0.5


class LanesStation(Station):
    """The lanes of one race. Thread: the series'; `stop` any."""

    def __init__(self, session: Session, controls: Controls, state: SeriesState) -> None:
        super().__init__()
        self.controls = controls
        self.session = session
        self.lanes = state.plan.lanes
        self.measured: Snapshot | None = None
        self._stopped = threading.Event()
        self._news = threading.Condition()
        self.slices: Counter[str] = Counter()
        self._race = session.snapshot().race.number
        self._forget = session.listen(self._hear)

    def open(self) -> Sequence[Settings]:
        """Wait until the lanes train."""
        self.wait_until_racing(self.lanes)
        return [self.lane(name).settings for name in self.lanes]

    def leave(self) -> None:
        """Restore the lanes."""
        self.measured = self.session.snapshot()
        self._forget()
        with contextlib.suppress(StoppedError):  # another race
            self.restore()

    def restore(self) -> None:
        """Restore the settings."""

    def keep(self, step: SeriesStep) -> None:
        """Record a step, unless another race has begun."""
        if self.session.snapshot().race.number == self._race:
            self.session.advance_series(step)

    def stop(self, reason: str = "") -> None:
        """Make waiting methods raise StoppedError."""
        super().stop(reason)
        self._stopped.set()
        with self._news:
            self._news.notify_all()

    def lane(self, name: str) -> LaneState:
        """Return a lane's state; raises StoppedError after another race began."""
        snapshot = self.session.snapshot()
        if snapshot.race.number != self._race:
            raise StoppedError("another race was started")
        return snapshot.lane(name)

    def check(self, name: str) -> None:
        """Raise RefusedError if a lane has ended, or StoppedError for a user's command."""
        lane = self.lane(name)
        if lane.over or lane.end.requested is not None:
            reason = lane.trouble.message if lane.trouble else f"{lane.title} has ended"
            raise StoppedError(reason) if lane.script.command else RefusedError(reason)

    def set_knob(self, lanes: Sequence[str], knob: str, value: KnobValue) -> None:
        """Set a knob and wait; raises RefusedError."""
        snapshot = self.session.snapshot()
        began_ns, live = snapshot.at_ns, find(snapshot.race.knobs, knob).kind == "live"
        for name in lanes:
            lane = self.lane(name)
            if lane.script.command:
                self.check(name)
            if lane.over or lane.settings.get(knob) != value or knob in lane.changes.requested:
                self.controls.set_knob(name, knob, value)
            if lane.over and live:  # its process may still run, and would not answer
                self.controls.restart([name])

        def in_effect() -> bool:
            states = [self.lane(name) for name in lanes]
            for lane in states:
                if lane.script.command:
                    self.check(lane.spec.name)
                if lane.phase in (FAILED, ABSENT) and lane.phase_since_ns >= began_ns and lane.trouble:
                    raise RefusedError(lane.trouble.message)
                refused = lane.changes.refused if knob not in lane.changes.requested else ""
                if refused and lane.settings.get(knob) != value:
                    raise RefusedError(refused)
            settled = not any(lane.changes.requested or lane.over for lane in states)
            return settled and all(lane.settings.get(knob) == value for lane in states)

        self.wait(in_effect, f"{knob} did not come into effect")

    @property
    def patience_s(self) -> float:
        """Longest wait for progress."""
        lanes = self.session.snapshot().lanes
        longest_ns = max((lane.heartbeat.longest_window_ns for lane in lanes), default=0)
        return max(PATIENCE_S, TIMES_WINDOW * longest_ns / 1e9)

    def wait(self, condition: Callable[[], bool], otherwise: str) -> None:
        """Wait for a condition; raises RefusedError."""
        began = time.monotonic()
        while True:
            if self._stopped.is_set():
                raise StoppedError
            if condition():
                return
            if any(PHASES.index(lane.phase) < PHASES.index(READY) for lane in self.session.snapshot().lanes):
                began = time.monotonic()  # the watchdog ends silent lanes
            patience_s = self.patience_s
            left_s = began + patience_s - time.monotonic()
            if left_s <= 0:
                raise RefusedError(f"{otherwise} within {patience_s:.0f} s")
            with self._news:
                if not self._stopped.is_set():
                    self._news.wait(min(left_s, POLL_S))

    def wait_until_racing(self, lanes: Sequence[str]) -> None:
        """Wait until lanes have trained; raises RefusedError."""

        def racing() -> bool:
            states = [self.lane(name) for name in lanes]
            for lane in states:
                self.check(lane.spec.name)
            paused = [lane.spec.name for lane in states if lane.phase == PAUSED]
            if paused:
                self.controls.resume(paused)
            return all(lane.points for lane in states)

        self.wait(racing, "the lanes did not begin to train")

    def _hear(self, event: Event) -> None:
        if isinstance(event, SliceEnded):
            self.slices[event.lane] += 1
        if event.lane or isinstance(event, HostSample):
            with self._news:
                self._news.notify_all()

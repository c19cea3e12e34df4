"""Drives lanes for an experiment: sets a knob, and waits until it is in effect or enough is measured."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from tfmon.model.events import Event
from tfmon.model.knobs import KnobValue, find
from tfmon.model.lane_events import SliceEnded
from tfmon.model.lane_state import ABSENT, FAILED, PAUSED, PHASES, READY, LaneState
from tfmon.model.ports import Controls
from tfmon.model.readings import HostSample
from tfmon.model.series import STOPPED, Experiment
from tfmon.model.session import Session, Snapshot

PATIENCE_S = 120.0
"""Longest wait for a knob to take effect, or for progress of a measurement."""
TIMES_WINDOW = 10
"""The same in windows, for long steps: the next slice of a lane can be some steps of others away."""
POLL_S = 0.5


class StoppedError(Exception):
    """The experiment was stopped; the message contains the reason, empty for the user."""


class FailedError(Exception):
    """The awaited condition is impossible; the message contains the reason."""


def why_ended(error: Exception) -> str:
    """Return why an experiment ended early."""
    if isinstance(error, StoppedError | FailedError):
        return str(error) or STOPPED
    return f"{type(error).__name__}: {error}"


class LaneDriver:
    """Drives the lanes of one race for one experiment; methods raise StoppedError after the start of another race.

    Thread: the experiment's; `stop` from any.
    """

    def __init__(self, session: Session, controls: Controls, patience_s: float = PATIENCE_S) -> None:
        self.controls = controls
        self._session = session
        self._patience_s = patience_s
        self._stopped = threading.Event()
        self._news = threading.Condition()
        self._slices: dict[str, int] = {}
        self._race = session.snapshot().race.number
        self._forget = session.listen(self._hear)

    def close(self) -> None:
        """Stop listening to the session."""
        self._forget()

    def stop(self) -> None:
        """End the experiment: waiting methods raise StoppedError."""
        self._stopped.set()
        with self._news:
            self._news.notify_all()

    def snapshot(self) -> Snapshot:
        """Return the latest snapshot."""
        return self._session.snapshot()

    def lane(self, name: str) -> LaneState:
        """Return a lane as it is now."""
        snapshot = self.snapshot()
        if snapshot.race.number != self._race:
            raise StoppedError("another race was started")
        return snapshot.lane(name)

    def check(self, name: str) -> None:
        """Raise FailedError if a lane does not train any more, StoppedError if nothing can restart it."""
        lane = self.lane(name)
        if lane.over or lane.end.requested is not None:
            reason = lane.trouble.message if lane.trouble else f"{lane.title} has ended"
            raise StoppedError(reason) if lane.script.command else FailedError(reason)

    def slices_ended(self, lane: str) -> int:
        """Return how many slices of a lane have ended since the experiment began."""
        return self._slices.get(lane, 0)

    def tell(self, experiment: Experiment) -> None:
        """Record the progress of the experiment, unless another race has begun."""
        if self.snapshot().race.number == self._race:
            self._session.set_experiment(experiment)

    def set_knob(self, lanes: Sequence[str], knob: str, value: KnobValue) -> None:
        """Set a knob of lanes and wait until it is in effect; raises FailedError if that is impossible."""
        began_ns = self.snapshot().at_ns
        live = find(self.snapshot().race.knobs, knob).kind == "live"
        for name in lanes:
            lane = self.lane(name)
            if lane.script.command:
                self.check(name)
            if lane.over or lane.settings.get(knob) != value or knob in lane.changes.requested:
                self.controls.set_knob(name, knob, value)
            if lane.over and live:  # its process may not have ended yet, and would not answer
                self.controls.restart([name])

        def in_effect() -> bool:
            states = [self.lane(name) for name in lanes]
            for lane in states:
                if lane.script.command:
                    self.check(lane.spec.name)
                if lane.phase in (FAILED, ABSENT) and lane.phase_since_ns >= began_ns and lane.trouble:
                    raise FailedError(lane.trouble.message)
                refused = lane.changes.refused if knob not in lane.changes.requested else ""
                if refused and lane.settings.get(knob) != value:
                    raise FailedError(refused)
            settled = not any(lane.changes.requested or lane.over for lane in states)
            return settled and all(lane.settings.get(knob) == value for lane in states)

        self.wait(in_effect, f"{knob} did not come into effect")

    def wait(self, condition: Callable[[], bool], otherwise: str) -> None:
        """Wait for a condition; raises FailedError, with the text `otherwise`, if no lane makes progress."""
        began = time.monotonic()
        while True:
            if self._stopped.is_set():
                raise StoppedError
            if condition():
                return
            if any(PHASES.index(lane.phase) < PHASES.index(READY) for lane in self.snapshot().lanes):
                began = time.monotonic()  # the watchdog ends a lane that says nothing while it starts
            longest_ns = max((lane.heartbeat.longest_window_ns for lane in self.snapshot().lanes), default=0)
            patience_s = max(self._patience_s, TIMES_WINDOW * longest_ns / 1e9)
            left_s = began + patience_s - time.monotonic()
            if left_s <= 0:
                raise FailedError(f"{otherwise} within {patience_s:.0f} s")
            with self._news:
                if not self._stopped.is_set():
                    self._news.wait(min(left_s, POLL_S))

    def wait_until_racing(self, lanes: Sequence[str]) -> None:
        """Wait until lanes have trained in this race, even paused ones; raises FailedError if one cannot."""

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
            self._slices[event.lane] = self._slices.get(event.lane, 0) + 1
        if event.lane or isinstance(event, HostSample):
            with self._news:
                self._news.notify_all()

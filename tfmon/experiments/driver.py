"""Wishes and waits: brings a knob into force on some lanes, and waits until enough is measured."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from tfmon.model.events import Event
from tfmon.model.knobs import KnobValue, find
from tfmon.model.lane_events import SliceEnded
from tfmon.model.lane_state import ABSENT, DONE, FAILED, PAUSED, LaneState
from tfmon.model.ports import Controls
from tfmon.model.race import Experiment
from tfmon.model.samples import HostSample
from tfmon.model.session import Session, Snapshot

PATIENCE_S = 120.0
"""How long a knob may take to come into force, or a measurement to get any further."""


class StoppedError(Exception):
    """Somebody ended the experiment; the text says why, empty when the user did."""


class LaneDriver:
    """Drives lanes for one experiment.

    Thread: the experiment's; `stop` from any.
    """

    def __init__(self, session: Session, controls: Controls, patience_s: float = PATIENCE_S) -> None:
        self.controls = controls
        self._session = session
        self._patience_s = patience_s
        self._stopped = threading.Event()
        self._news = threading.Condition()
        self._turns: dict[str, int] = {}
        self._race = session.snapshot().race.number
        self._forget = session.listen(self._hear)

    def close(self) -> None:
        """Stop listening to the session."""
        self._forget()

    def stop(self) -> None:
        """End the experiment: whatever waits raises StoppedError."""
        self._stopped.set()
        with self._news:
            self._news.notify_all()

    def snapshot(self) -> Snapshot:
        """Return what is known now."""
        return self._session.snapshot()

    def lane(self, name: str) -> LaneState:
        """Return a lane as it is now.

        Errors: StoppedError when another race has begun.
        """
        snapshot = self.snapshot()
        if snapshot.race.number != self._race:
            raise StoppedError("another race was started")
        return snapshot.lane(name)

    def tell(self, experiment: Experiment) -> None:
        """Note how far the experiment is, unless another race has begun."""
        if self.snapshot().race.number == self._race:
            self._session.set_experiment(experiment)

    def bring_into_force(self, lanes: Sequence[str], knob: str, value: KnobValue) -> str:
        """Set a knob on lanes and wait until they train under it; return why that cannot be, or "".

        Errors: StoppedError.
        """
        began_ns = self.snapshot().at_ns
        live = find(self.snapshot().race.knobs, knob).kind == "live"
        for name in lanes:
            state = self.lane(name)
            if state.over or state.settings.get(knob) != value or knob in state.requested:
                self.controls.set_knob(name, knob, value)
            if state.over and live:
                self.controls.restart([name])

        def answer() -> str | None:
            states = [self.lane(name) for name in lanes]
            for state in states:
                if state.phase in (FAILED, ABSENT) and state.phase_since_ns >= began_ns and state.trouble:
                    return state.trouble.message
                if state.refused and knob not in state.requested and state.settings.get(knob) != value:
                    return state.refused
            if all(state.settings.get(knob) == value and not state.requested and not state.over for state in states):
                return ""
            return None

        return self.wait(answer, f"{knob} did not come into force")

    def wait(self, answer: Callable[[], str | None], otherwise: str) -> str:
        """Wait until there is an answer and return it, or that there was none within the patience.

        Errors: StoppedError.
        """
        deadline = time.monotonic() + self._patience_s
        while True:
            if self._stopped.is_set():
                raise StoppedError
            found = answer()
            if found is not None:
                return found
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return f"{otherwise} within {self._patience_s:.0f} s"
            with self._news:
                if not self._stopped.is_set():
                    self._news.wait(min(left_s, 0.5))

    def turns_ended(self, lane: str) -> int:
        """Return how many slices of a lane have ended since the experiment began."""
        return self._turns.get(lane, 0)

    def wait_until_racing(self, lanes: Sequence[str]) -> str:
        """Wait until lanes have trained in this race; return why they cannot, or "".

        Errors: StoppedError.
        """

        def answer() -> str | None:
            states = [self.lane(name) for name in lanes]
            for state in states:
                if state.phase in (FAILED, ABSENT):
                    return state.trouble.message if state.trouble else f"{state.title} is {state.phase}"
                if state.phase == DONE:
                    return f"{state.title} has ended"
            paused = [state.spec.name for state in states if state.phase == PAUSED]
            if paused:
                self.controls.resume(paused)
            return "" if all(state.points for state in states) else None

        return self.wait(answer, "the lanes did not begin to train")

    def _hear(self, event: Event) -> None:
        if isinstance(event, SliceEnded):
            self._turns[event.lane] = self._turns.get(event.lane, 0) + 1
        if event.lane or isinstance(event, HostSample):
            with self._news:
                self._news.notify_all()

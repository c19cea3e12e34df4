"""The crossover: a series over one knob of two lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tfmon.analysis.crossover_curve import Curve, curve_of, next_value
from tfmon.model.events import Event, RaceBegan
from tfmon.model.knobs import Settings
from tfmon.model.ports import Controls
from tfmon.model.race import TURNS
from tfmon.model.series import Attempt, Figures, Pair, SeriesState
from tfmon.model.session import Session, Snapshot
from tfmon.series.engine import Policy, RaceStation, StoppedError
from tfmon.series.lanes import LanesStation


class CrossoverPolicy(Policy):
    """Measures every value, then the values next to a change of the lead."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot
        self._pairs = 0
        """Number of pairs at which the visit ends."""

    def next(self, state: SeriesState, kind: str) -> Attempt | None:
        """Return the next value."""
        due = next_value(self._curve(state).points)
        if due is None or state.running:
            return None
        value, self._pairs = due
        return state.attempts[state.values.index(value)]

    def more(self, state: SeriesState, number: int, pairs: int) -> bool:
        """Continue until the value has its pairs."""
        return len(state.attempts[number].pairs) < self._pairs

    def settled(self, state: SeriesState) -> bool:
        """Return whether each change of the lead is certain."""
        try:
            return next_value(self._curve(state).points) is None
        except StoppedError:
            return False

    def _curve(self, state: SeriesState) -> Curve:
        try:
            return curve_of(self._snapshot(), state)
        except KeyError:  # another race has begun
            raise StoppedError from None


class CrossoverStation(LanesStation, RaceStation):
    """Two lanes that continue to train while a value is set."""

    def __init__(self, session: Session, controls: Controls, state: SeriesState) -> None:
        super().__init__(session, controls, state)
        self._knob = state.knob
        self._mode = session.snapshot().race.mode
        self._before: Sequence[Settings] = ()

    def open(self) -> Sequence[Settings]:
        """Wait until both lanes train in turns."""
        if self._mode != TURNS:
            self.controls.set_mode(TURNS)
        self._before = super().open()
        return self._before

    def begin(self, attempt: Attempt) -> tuple[str, str]:
        """Set a value in both lanes; raises RefusedError."""
        for knob, value in attempt.settings.items():
            self.set_knob(self.lanes, knob, value)
        first, second = self.lanes
        return second, first

    def end(self) -> None:
        """Keep the lanes."""

    def restore(self) -> None:
        """Restore the values and the mode."""
        for name, settings in zip(self.lanes, self._before, strict=False):
            if self.lane(name).settings.get(self._knob) != settings[self._knob]:
                self.controls.set_knob(name, self._knob, settings[self._knob])
        if self._mode != TURNS:
            self.controls.set_mode(self._mode)

    def hear(self, event: Event) -> None:
        """End the series if another race begins."""
        if isinstance(event, RaceBegan):
            self.stop("another race was started")
        super().hear(event)

    def pair(self, number: int, attempt: Attempt) -> Pair | None:
        """Return the pair of a round with two whole slices."""
        lanes = [self.lane(name) for name in self._racing]
        whole = (any(part.round == number and part.load is not None for part in lane.slices) for lane in lanes)
        pair = super().pair(number, attempt) if all(whole) else None
        return pair and replace(pair, visit=lanes[1].process.number)

    def over(self, event: Event) -> None:
        """Raise RefusedError, or StoppedError for a user's command."""
        self.check(event.lane)

    def figures(self, attempt: Attempt) -> Figures | None:
        """Return `None`: the lanes have the readings."""
        return None

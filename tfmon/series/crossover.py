"""The crossover: a series over one knob of two lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tfmon.analysis.crossover_curve import Curve, curve_of, next_value
from tfmon.analysis.statistics import pairs_of
from tfmon.model.knobs import Settings
from tfmon.model.ports import Controls
from tfmon.model.race import TURNS
from tfmon.model.series import Attempt, Pair, SeriesState
from tfmon.model.session import Session
from tfmon.model.windows import SliceSpeed
from tfmon.series.engine import Policy, RefusedError, StoppedError
from tfmon.series.lanes import LanesStation


class Crossover(LanesStation, Policy):
    """Measures every value, then the values next to a change of the lead, on lanes that continue to train."""

    def __init__(self, session: Session, controls: Controls, state: SeriesState) -> None:
        super().__init__(session, controls, state)
        self._knob = state.knob
        self._mode = session.snapshot().race.mode
        self._before: Sequence[Settings] = ()
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
            return curve_of(self.session.snapshot(), state)
        except KeyError:  # another race has begun
            raise StoppedError from None

    def open(self) -> Sequence[Settings]:
        """Wait until both lanes train in turns."""
        if self._mode != TURNS:
            self.controls.set_mode(TURNS)
        self._before = super().open()
        return self._before

    def restore(self) -> None:
        """Restore the values and the mode."""
        for name, settings in zip(self.lanes, self._before, strict=False):
            if self.lane(name).settings.get(self._knob) != settings[self._knob]:
                self.controls.set_knob(name, self._knob, settings[self._knob])
        if self._mode != TURNS:
            self.controls.set_mode(self._mode)

    def measure(self, attempt: Attempt, add: Callable[[Pair, float], bool]) -> None:
        """Set a value in both lanes, and add a pair for each round."""
        value = attempt.settings[self._knob]
        self.set_knob(self.lanes, self._knob, value)
        latest = max((part.round for name in self.lanes for part in self.lane(name).slices), default=0)
        before_ns = 0

        def rounds() -> list[tuple[SliceSpeed, SliceSpeed]]:
            first, second = map(self.lane, self.lanes)
            whole = {part.round: part for part in second.slices if part.load is not None}
            slices = [part for part in first.slices if part.load is not None and part.round > latest]
            return [(part, whole[part.round]) for part in slices if part.round in whole]

        def measured() -> bool:
            for name in self.lanes:
                self.check(name)
                if (now := self.lane(name).settings.get(self._knob)) != value:
                    raise RefusedError(f"{self._knob}={now} stays")
            return bool(rounds())

        while True:
            self.wait(measured, "no round was measured")
            first, second = rounds()[0]
            latest, at_ns = first.round, max(first.at_ns, second.at_ns)
            took_s = (at_ns - (before_ns or min(first.at_ns, second.at_ns))) / 1e9
            before_ns = at_ns
            for pair in pairs_of([first], [second]):
                if not add(pair, took_s):
                    return

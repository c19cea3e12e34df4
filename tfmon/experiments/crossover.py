"""Races two lanes over the values of a knob until the crossover is known."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace

from tfmon.analysis.crossover import Curve, curve_of, next_value, pairs_left
from tfmon.experiments.driver import FailedError, LaneDriver, StoppedError
from tfmon.model.knobs import KnobValue
from tfmon.model.race import TURNS, CrossoverState

LONG_PAIR_S = 20.0
"""Where a pair takes longer than this, higher values are not measured: they would take longer still."""


class Crossover:
    """One crossover. Thread: one of its own; `measure`, then `give_back` whatever happened."""

    def __init__(self, driver: LaneDriver, state: CrossoverState) -> None:
        self._driver = driver
        self.state = state
        self._mode = driver.snapshot().race.mode
        self._before: dict[str, KnobValue] = {}
        """The value of the knob in each lane, once they train."""
        self._pair_s: list[float] = []

    def measure(self) -> None:
        """Race at one value after the other until all is known."""
        if self._mode != TURNS:
            self._driver.controls.set_mode(TURNS)
        self._driver.wait_until_racing(self.state.lanes)
        self._before = {name: self._driver.lane(name).settings[self.state.knob] for name in self.state.lanes}
        while (due := next_value(self._curve())) is not None:
            self._measure(*due)

    def give_back(self) -> None:
        """Give both lanes the value that they had before."""
        driver, knob = self._driver, self.state.knob
        self.state = replace(self.state, at=None, left_s=None)
        with contextlib.suppress(StoppedError):  # another race: there is nothing to restore
            for name, value in self._before.items():
                if driver.lane(name).settings.get(knob) != value:
                    driver.controls.set_knob(name, knob, value)
            if self._mode != TURNS:
                driver.controls.set_mode(self._mode)

    def _measure(self, value: KnobValue, pairs: int) -> None:
        """Race at a value until there are so many pairs in all."""
        began = time.monotonic()
        before = self._pairs_at(value)
        try:
            self._tell(replace(self.state, at=value, left_s=self._left_s()))
            self._driver.set_knob(self.state.lanes, self.state.knob, value)
            while (now := self._pairs_at(value)) < pairs:
                self._wait_for_more(now, value)
                self._tell(replace(self.state, left_s=self._left_s()))
        except FailedError as failed:
            self._refuse([value], str(failed))
            return
        self._pair_s.append((time.monotonic() - began) / max(1, pairs - before))
        if self._pair_s[-1] > LONG_PAIR_S:
            higher = [other for other in self.state.values if float(other) > float(value)]
            reason = f"not measured: a pair takes {self._pair_s[-1]:.0f} s at {value} already"
            self._refuse([other for other in higher if not self._pairs_at(other)], reason)

    def _wait_for_more(self, pairs: int, value: KnobValue) -> None:
        def more() -> bool:
            if self._pairs_at(value) > pairs:
                return True
            for name in self.state.lanes:
                self._driver.check(name)
            return False

        self._driver.wait(more, "no slice ended")

    def _curve(self) -> Curve:
        try:
            return curve_of(self._driver.snapshot(), self.state)
        except KeyError:  # another race has begun, without these lanes
            raise StoppedError from None

    def _pairs_at(self, value: KnobValue) -> int:
        return next(point.pairs for point in self._curve().places if point.value == value)

    def _refuse(self, values: Sequence[KnobValue], reason: str) -> None:
        refused = {**self.state.refused, **dict.fromkeys(values, reason)}
        self._tell(replace(self.state, refused=refused))

    def _left_s(self) -> float | None:
        if not self._pair_s:
            return None
        return pairs_left(self._curve()) * sum(self._pair_s) / len(self._pair_s)

    def _tell(self, state: CrossoverState) -> None:
        self.state = state
        self._driver.tell(state)

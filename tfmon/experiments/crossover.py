"""Races two lanes over the values of a knob until the crossover is known."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace

from tfmon.analysis.crossover import Curve, curve_of, next_value, pairs_left
from tfmon.experiments.driver import LaneDriver, StoppedError
from tfmon.model.knobs import KnobValue
from tfmon.model.race import CrossoverState
from tfmon.model.session import TURNS

LONG_PAIR_S = 20.0
"""Where a pair takes longer than this, higher values are left out: they would take longer still."""


class Crossover:
    """One run. The lanes get back the setting they had before, whatever happens.

    Thread: `run` in one of its own.
    """

    def __init__(self, driver: LaneDriver, state: CrossoverState) -> None:
        self._driver = driver
        self._state = state
        self._pair_s: list[float] = []

    def run(self) -> CrossoverState:
        """Measure until all is known or somebody stops it; return the state at the end."""
        lanes, knob = self._state.lanes, self._state.knob
        before: dict[str, KnobValue] = {}
        mode = self._driver.snapshot().race.mode
        ended = ""
        try:
            if mode != TURNS:
                self._driver.controls.set_mode(TURNS)
            why = self._driver.wait_until_racing(lanes)
            if why:
                raise StoppedError(why)
            before = {name: self._driver.lane(name).settings[knob] for name in lanes}
            while (wanted := next_value(self._curve())) is not None:
                self._measure(*wanted)
        except StoppedError as stopped:
            ended = str(stopped) or "stopped"
        with contextlib.suppress(StoppedError):  # another race: there is nothing to restore
            for name, value in before.items():
                if self._driver.lane(name).settings.get(knob) != value:
                    self._driver.controls.set_knob(name, knob, value)
            if mode != TURNS:
                self._driver.controls.set_mode(mode)
        self._tell(replace(self._state, at=None, left_s=None, over=True, ended=ended))
        return self._state

    def _curve(self) -> Curve:
        return curve_of(self._driver.snapshot(), self._state)

    def _measure(self, value: KnobValue, pairs: int) -> None:
        began = time.monotonic()
        had = self._pairs_at(value)
        self._tell(replace(self._state, at=value, left_s=self._left_s()))
        why = self._driver.bring_into_force(self._state.lanes, self._state.knob, value)
        while not why and (now := self._pairs_at(value)) < pairs:
            why = self._wait_for_more_than(now, value)
            self._tell(replace(self._state, left_s=self._left_s()))
        if why:
            self._refuse([value], why)
            return
        self._pair_s.append((time.monotonic() - began) / max(1, pairs - had))
        if self._pair_s[-1] > LONG_PAIR_S:
            higher = [other for other in self._state.values if float(other) > float(value)]
            self._refuse(
                [other for other in higher if not self._pairs_at(other)],
                f"left out: a pair takes {self._pair_s[-1]:.0f} s at {value} already",
            )

    def _wait_for_more_than(self, pairs: int, value: KnobValue) -> str:
        return self._driver.wait(
            lambda: "" if self._pairs_at(value) > pairs else self._failure(), "no slice ended"
        )

    def _pairs_at(self, value: KnobValue) -> int:
        return next(place.pairs for place in self._curve().places if place.value == value)

    def _failure(self) -> str | None:
        """Return why a lane cannot go on, or None if both can."""
        for name in self._state.lanes:
            lane = self._driver.lane(name)
            if lane.over:
                return lane.trouble.message if lane.trouble else f"{lane.title} has ended"
        return None

    def _refuse(self, values: list[KnobValue], why: str) -> None:
        refused = {**self._state.refused, **dict.fromkeys(values, why)}
        self._tell(replace(self._state, refused=refused))

    def _left_s(self) -> float | None:
        if not self._pair_s:
            return None
        return pairs_left(self._curve()) * sum(self._pair_s) / len(self._pair_s)

    def _tell(self, state: CrossoverState) -> None:
        self._state = state
        self._driver.tell(state)

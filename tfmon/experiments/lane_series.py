"""The series on the lanes of a race, with knobs set like a user: a crossover of two lanes, tuning of one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tfmon.analysis.causes import Cause
from tfmon.analysis.crossover import Curve, curve_of, next_value, pairs_left
from tfmon.analysis.tuning import (
    LOOKS,
    advised,
    best_of,
    decide,
    gain_of,
    looks_at,
    pairs_of,
    plan_attempt,
    slices_in,
)
from tfmon.experiments.driver import FailedError, LaneDriver, StoppedError
from tfmon.model.knobs import KnobValue
from tfmon.model.lane_state import LaneState
from tfmon.model.race import TURNS
from tfmon.model.series import KEPT, REFUSED, STOPPED, Attempt, Block, CrossoverState, TuneState

SLICES = 2
"""Slices in a row under one setting, if a change is cheap."""
SLICES_IN_A_BLOCK = LOOKS[0]
"""The same if it costs a process, or an epoch until a cache is full or a script obeys: one look a block."""
SLICE_STEPS, SHORTEST_S, LONGEST_S = 20, 0.25, 0.5
"""A slice holds about so many steps, within these bounds: at least a quarter of it is warm-up, see the trainer,
and shorter slices give more pairs in the same time."""
STEADY_NS = 1_000_000_000
"""Training time under the settings before the bottleneck is determined."""


class Tuning:
    """One series of attempts. The lane ends under settings that were measured to be better.

    Thread: its own; `measure`, then `give_back` in any case.
    """

    def __init__(self, driver: LaneDriver, state: TuneState) -> None:
        self._driver = driver
        self.state = state
        self._epoch_trained = False

    def measure(self) -> None:
        """Try one change, or continue until nothing helps."""
        driver, lane = self._driver, self.state.lane
        driver.controls.set_exclusive(lane)
        driver.wait_until_racing([lane])
        start = dict(driver.lane(lane).settings)
        while (result := self._next_cause()) is not None:
            if driver.snapshot().race.fresh and self.state.series:
                self._renew()
            self._try(*result)
            if not self.state.everything:
                break
        if self.state.everything:
            self._compare_with(start)

    def give_back(self) -> None:
        """Continue the other lanes; the last attempt is settled by then."""
        self._driver.controls.set_exclusive("")

    def _next_cause(self) -> tuple[Cause, str, int] | None:
        """Wait for the bottleneck; return the likeliest remaining change, its cause, and their number."""
        result: list[tuple[Cause, str, int]] = []
        tried = len(self.state.series)

        def known() -> bool:
            self._driver.check(self.state.lane)
            lane = self._lane()
            bottleneck = advised(self._driver.snapshot(), lane, everything=self.state.everything)
            if bottleneck is None or lane.steady.span_ns < STEADY_NS:
                return False
            can_try = [one for one in bottleneck.causes if one.can_try]
            choices = tried + len(can_try) if self.state.everything else 1
            result.extend((one, bottleneck.kind, choices) for one in can_try[:1])
            return True

        self._driver.wait(known, "too little was measured to name the bottleneck of the lane")
        return result[0] if result else None

    def _renew(self) -> None:
        """Give the lane a fresh process, so that the series does not depend on the memory layout of one."""
        lane = self.state.lane
        before = self._lane().process.number
        self._driver.controls.restart([lane])
        self._driver.wait(lambda: self._lane().process.number > before, "the lane was not started again")
        self._driver.wait_until_racing([lane])

    def _try(self, cause: Cause, bottleneck: str, choices: int) -> None:
        self._lane()  # of this race
        attempt = plan_attempt(self._driver.snapshot(), self.state.lane, cause, bottleneck, choices)
        earlier = self.state.attempts

        def tell(attempt: Attempt) -> None:
            self._tell(replace(self.state, attempts=(*earlier, attempt)))

        tell(attempt)
        self._compare(attempt, tell)

    def _compare_with(self, start: Mapping[str, KnobValue]) -> None:
        """Measure the final settings against the initial ones, unless one attempt did that."""
        lane, changed = self._lane(), best_of(self.state).settings
        kept = [one for one in self.state.series if one.outcome == KEPT]
        if len(kept) < 2 or not changed:
            return
        restarts = any(one.restarts for one in kept)
        attempt = Attempt(lane.spec.name, dict(start), dict(lane.settings), restarts=restarts)
        self._compare(attempt, lambda total: self._tell(replace(self.state, total=total)), starts_changed=True)

    def _compare(self, attempt: Attempt, tell: Callable[[Attempt], None], *, starts_changed: bool = False) -> None:
        """Train under both settings alternately until a decision; `starts_changed`: the new ones stay."""
        self._epoch_trained = starts_changed
        step_ms = self._lane().steady.step_ms(0.5) or 0.0
        slice_s = min(LONGEST_S, max(SHORTEST_S, SLICE_STEPS * step_ms / 1e3))
        self._driver.controls.set_exclusive(attempt.lane, slice_s)
        waits = bool(self._lane().script.command)
        in_blocks = waits or attempt.restarts or self._fills_a_cache(attempt)
        slices = SLICES_IN_A_BLOCK if in_blocks else SLICES
        first = looks_at(attempt)[0]
        outcome = reason = ""
        try:
            while not outcome:
                for changed in (False, True):
                    self._set(attempt.after if changed else attempt.before)
                    if changed:
                        self._wait_for_an_epoch(attempt)
                    block = Block(changed, self._driver.snapshot().at_ns)
                    attempt = replace(attempt, blocks=(*attempt.blocks, block))
                    tell(attempt)
                    try:
                        self._wait_for_slices(attempt, slices)
                    finally:
                        ended = replace(block, until_ns=self._driver.snapshot().at_ns)
                        attempt = replace(attempt, blocks=(*attempt.blocks[:-1], ended))
                        tell(attempt)
                if len(pairs_of(self._lane(), attempt)) >= first:
                    outcome = decide(self._lane(), attempt)
                    if starts_changed:
                        outcome = outcome and KEPT
        except FailedError as failed:
            outcome, reason = REFUSED, str(failed)
        except StoppedError:
            with contextlib.suppress(StoppedError):  # another race: the lane of this one is gone
                attempt = replace(attempt, gain=gain_of(self._lane(), attempt))
            tell(replace(attempt, outcome=STOPPED))
            self._request(attempt.after if starts_changed else attempt.before)
            raise
        tell(replace(attempt, outcome=outcome, reason=reason, gain=gain_of(self._lane(), attempt)))
        try:
            self._set(attempt.after if outcome == KEPT or starts_changed else attempt.before)
        except FailedError as failed:
            raise FailedError(f"the lane did not get its settings back: {failed}") from failed

    def _wait_for_slices(self, attempt: Attempt, slices: int) -> None:
        before = self._driver.slices_ended(attempt.lane)

        def trained() -> bool:
            self._driver.check(attempt.lane)
            ended = self._driver.slices_ended(attempt.lane) - before >= slices
            return ended and bool(slices_in(self._lane(), attempt, attempt.blocks[-1]))

        self._driver.wait(trained, "no slice ended")

    def _wait_for_an_epoch(self, attempt: Attempt) -> None:
        """Wait, once, until a cache that the change turns on is full: it helps from the second epoch on."""
        if self._epoch_trained or not self._fills_a_cache(attempt):
            return
        self._epoch_trained = True
        lane = self._lane()
        until = lane.totals.examples + (lane.process.data_examples or 0)

        def full() -> bool:
            self._driver.check(attempt.lane)
            return self._lane().totals.examples >= until

        self._driver.wait(full, "the cache was not full")

    @staticmethod
    def _fills_a_cache(attempt: Attempt) -> bool:
        return attempt.change.get("cache") is True

    def _set(self, settings: Mapping[str, KnobValue]) -> None:
        """Set the differences, and wait until the lane trains under them."""
        for knob, value in settings.items():
            lane = self._lane()
            if lane.over or knob in lane.changes.requested or lane.settings.get(knob) != value:
                self._driver.set_knob([lane.spec.name], knob, value)

    def _request(self, settings: Mapping[str, KnobValue]) -> None:
        """Request settings without waiting, because the experiment is stopped."""
        with contextlib.suppress(StoppedError):  # another race: there is nothing to restore
            lane = self._lane()
            for knob, value in settings.items():
                requested = lane.changes.requested.get(knob)
                if (requested.value if requested is not None else lane.settings.get(knob)) != value:
                    self._driver.controls.set_knob(lane.spec.name, knob, value)

    def _lane(self) -> LaneState:
        return self._driver.lane(self.state.lane)

    def _tell(self, state: TuneState) -> None:
        self.state = state
        self._driver.tell(state)


LONG_PAIR_S = 20.0
"""After a longer pair, higher values are not measured: they would take longer still."""


class Crossover:
    """One crossover. Thread: its own; `measure`, then `give_back` in any case."""

    def __init__(self, driver: LaneDriver, state: CrossoverState) -> None:
        self._driver = driver
        self.state = state
        self._mode = driver.snapshot().race.mode
        self._before: dict[str, KnobValue] = {}
        self._pair_s: list[float] = []

    def measure(self) -> None:
        """Race at one value after the other until all is known."""
        if self._mode != TURNS:
            self._driver.controls.set_mode(TURNS)
        self._driver.wait_until_racing(self.state.lanes)
        under = tuple(dict(self._driver.lane(name).settings) for name in self.state.lanes)
        self.state = replace(self.state, under=under)
        self._before = {
            name: settings[self.state.knob] for name, settings in zip(self.state.lanes, under, strict=True)
        }
        while (due := next_value(self._curve())) is not None:
            self._measure(*due)

    def give_back(self) -> None:
        """Restore the initial value of both lanes."""
        driver, knob = self._driver, self.state.knob
        self.state = replace(self.state, at=None, left_s=None, most_left_s=None)
        with contextlib.suppress(StoppedError):  # another race: there is nothing to restore
            for name, value in self._before.items():
                if driver.lane(name).settings.get(knob) != value:
                    driver.controls.set_knob(name, knob, value)
            if self._mode != TURNS:
                driver.controls.set_mode(self._mode)

    def _measure(self, value: KnobValue, pairs: int) -> None:
        began = time.monotonic()
        before = self._pairs_at(value)
        try:
            self._tell(replace(self._with_time_left(), at=value))
            self._driver.set_knob(self.state.lanes, self.state.knob, value)
            while (now := self._pairs_at(value)) < pairs:
                self._wait_for_more(now, value)
                self._tell(self._with_time_left())
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

    def _with_time_left(self) -> CrossoverState:
        if not self._pair_s:
            return self.state
        pair_s = sum(self._pair_s) / len(self._pair_s)
        least, most = pairs_left(self._curve())
        return replace(self.state, left_s=least * pair_s, most_left_s=most * pair_s)

    def _tell(self, state: CrossoverState) -> None:
        self.state = state
        self._driver.tell(state)

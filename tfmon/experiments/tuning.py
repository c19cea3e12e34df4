"""Tries advice on one lane while it trains: old and new settings alternately, and keeps what helps."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace

from tfmon.analysis.advice import Advice
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
from tfmon.model.race import KEPT, REFUSED, STOPPED, Attempt, Block, TuneState

SLICES = 2
"""Slices in a row under one setting, where a change costs next to nothing."""
SLICES_IN_A_BLOCK = LOOKS[0]
"""The same where it costs a new process, or an epoch until a cache is full or a script obeys: one look a block."""
SLICE_STEPS, SHORTEST_S, LONGEST_S = 20, 0.25, 0.5
"""A slice holds about so many steps, within these bounds: at least a quarter of it is warm-up, see the trainer,
and shorter slices give more pairs in the same time."""
STEADY_NS = 1_000_000_000
"""How long a lane trains under its settings before its bottleneck is named."""


class Tuning:
    """One series of attempts. The lane ends under settings that were measured to be better.

    Thread: one of its own; `measure`, then `give_back` whatever happened.
    """

    def __init__(self, driver: LaneDriver, state: TuneState) -> None:
        self._driver = driver
        self.state = state
        self._epoch_trained = False

    def measure(self) -> None:
        """Try one change, or go on until nothing helps."""
        driver, lane = self._driver, self.state.lane
        driver.controls.set_exclusive(lane)
        driver.wait_until_racing([lane])
        start = dict(driver.lane(lane).settings)
        while (found := self._next_advice()) is not None:
            if driver.snapshot().race.fresh and len(self.state.attempts) > self.state.first:
                self._renew()
            self._try(*found)
            if not self.state.everything:
                break
        if self.state.everything:
            self._compare_with(start)

    def give_back(self) -> None:
        """Let the other lanes train again; what was tried last is settled by then."""
        self._driver.controls.set_exclusive("")

    # ---------------------------------------------------------------- what to try

    def _next_advice(self) -> tuple[Advice, str, int] | None:
        """Wait until the bottleneck is known; return the likeliest change left to try, it, and of how many."""
        found: list[tuple[Advice, str, int]] = []
        tried = len(self.state.attempts) - self.state.first

        def known() -> bool:
            self._driver.check(self.state.lane)
            lane = self._lane()
            bottleneck = advised(self._driver.snapshot(), lane, everything=self.state.everything)
            if bottleneck is None or lane.steady.span_ns < STEADY_NS:
                return False
            can_try = [one for one in bottleneck.advice if not one.by_hand]
            choices = tried + len(can_try) if self.state.everything else 1
            found.extend((one, bottleneck.kind, choices) for one in can_try[:1])
            return True

        self._driver.wait(known, "too little was measured to name the bottleneck of the lane")
        return found[0] if found else None

    def _renew(self) -> None:
        """Give the lane a fresh process, so that the series does not rest on how the memory of one lies."""
        lane = self.state.lane
        before = self._lane().process
        self._driver.controls.restart([lane])
        self._driver.wait(lambda: self._lane().process > before, "the lane was not started again")
        self._driver.wait_until_racing([lane])

    def _try(self, advice: Advice, bottleneck: str, choices: int) -> None:
        """Try one change of some; the better settings are in effect then."""
        attempt = plan_attempt(self._lane(), advice, bottleneck, self._driver.snapshot().race.knobs, choices)
        earlier = self.state.attempts

        def tell(attempt: Attempt) -> None:
            self._tell(replace(self.state, attempts=(*earlier, attempt)))

        tell(attempt)
        self._compare(attempt, tell)

    def _compare_with(self, start: Mapping[str, KnobValue]) -> None:
        """Measure the settings that were found against those at the beginning, unless one attempt did that."""
        lane, changed = self._lane(), best_of(self.state).settings
        kept = [one for one in self.state.attempts[self.state.first :] if one.outcome == KEPT]
        if len(kept) < 2 or not changed:
            return
        restarts = any(one.restarts for one in kept)
        attempt = Attempt(lane.spec.name, dict(start), dict(lane.settings), restarts=restarts)
        self._compare(attempt, lambda total: self._tell(replace(self.state, total=total)), starts_changed=True)

    # ---------------------------------------------------------------- measuring

    def _compare(self, attempt: Attempt, tell: Callable[[Attempt], None], *, starts_changed: bool = False) -> None:
        """Train under both settings alternately until it is decided.

        Args:
            attempt: The two settings.
            tell: Takes the attempt whenever it got further.
            starts_changed: The new settings are in effect before, and stay whatever is measured.
        """
        self._epoch_trained = starts_changed
        self._driver.controls.set_exclusive(attempt.lane, self._slice_s())
        waits = bool(self._lane().command)
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
            tell(replace(attempt, outcome=STOPPED))
            self._request(attempt.after if starts_changed else attempt.before)
            raise
        tell(replace(attempt, outcome=outcome, reason=reason, gain=gain_of(self._lane(), attempt)))
        try:
            self._set(attempt.after if outcome == KEPT or starts_changed else attempt.before)
        except FailedError as failed:
            raise FailedError(f"the lane did not get its settings back: {failed}") from failed

    def _wait_for_slices(self, attempt: Attempt, slices: int) -> None:
        """Train some slices under the settings in effect."""
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
        until = lane.examples + (lane.data_examples or 0)

        def full() -> bool:
            self._driver.check(attempt.lane)
            return self._lane().examples >= until

        self._driver.wait(full, "the cache was not full")

    def _slice_s(self) -> float:
        """Return how long a slice lasts with the steps that the lane trains now."""
        step_ms = self._lane().steady.step_ms(0.5) or 0.0
        return min(LONGEST_S, max(SHORTEST_S, SLICE_STEPS * step_ms / 1e3))

    @staticmethod
    def _fills_a_cache(attempt: Attempt) -> bool:
        return attempt.change.get("cache") is True

    # ---------------------------------------------------------------- settings

    def _set(self, settings: Mapping[str, KnobValue]) -> None:
        """Set what differs, and wait until the lane trains under it."""
        for knob, value in settings.items():
            lane = self._lane()
            if lane.over or knob in lane.requested or lane.settings.get(knob) != value:
                self._driver.set_knob([lane.spec.name], knob, value)

    def _request(self, settings: Mapping[str, KnobValue]) -> None:
        """Request settings without waiting: the experiment is stopped."""
        with contextlib.suppress(StoppedError):  # another race: there is nothing to restore
            lane = self._lane()
            for knob, value in settings.items():
                requested = lane.requested[knob].value if knob in lane.requested else lane.settings.get(knob)
                if requested != value:
                    self._driver.controls.set_knob(lane.spec.name, knob, value)

    def _lane(self) -> LaneState:
        return self._driver.lane(self.state.lane)

    def _tell(self, state: TuneState) -> None:
        self.state = state
        self._driver.tell(state)

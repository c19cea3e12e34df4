"""Tries advice on one lane that trains on: the old and the new settings by turns, and keeps what helps."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace

from tfmon.analysis.advice import Advice
from tfmon.analysis.tuning import (
    LOOKS,
    LOOKS_RESTARTING,
    advised,
    best_of,
    decide,
    gain_of,
    pairs_of,
    plan_attempt,
    slices_in,
)
from tfmon.experiments.driver import LaneDriver, StoppedError
from tfmon.model.knobs import KnobValue
from tfmon.model.lane_state import LaneState
from tfmon.model.race import KEPT, REFUSED, STOPPED, Attempt, Block, TuneState

SLICES = 2
"""Slices in a row under one setting, where a change costs next to nothing."""
SLICES_IN_A_BLOCK = LOOKS[0]
"""The same where it costs a new process, or an epoch until the cache is full: one look a block."""
SLICE_STEPS, SHORTEST_S, LONGEST_S = 20, 0.25, 0.5
"""A slice holds about so many steps, within these bounds: a quarter of its start is left out or more, see the
trainer, and shorter slices give more pairs in the same time."""
STEADY_NS = 1_000_000_000
"""A lane trains for so long under its settings before it is said what bounds it."""


class Tuning:
    """One series of attempts. Whatever happens, the lane ends under settings that were measured to be better.

    Thread: `run` in one of its own.
    """

    def __init__(self, driver: LaneDriver, state: TuneState) -> None:
        self._driver = driver
        self._state = state
        self._epoch_trained = False

    def run(self) -> TuneState:
        """Try one change, or go on until nothing helps; return the state at the end."""
        ended = ""
        driver, lane = self._driver, self._state.lane
        driver.controls.set_exclusive(lane)
        try:
            why = driver.wait_until_racing([lane])
            if why:
                raise StoppedError(why)
            start = dict(driver.lane(lane).settings)
            while (found := self._next_advice()) is not None:
                self._try(*found)
                if not self._state.everything:
                    break
            if self._state.everything:
                self._compare_with(start)
        except StoppedError as stopped:
            ended = str(stopped) or STOPPED
        driver.controls.set_exclusive("")
        self._tell(replace(self._state, over=True, ended=ended))
        return self._state

    # ------------------------------------------------------------ what to try

    def _next_advice(self) -> tuple[Advice, str] | None:
        """Wait until it is known what bounds the lane; return the likeliest change left to try, and the bound.

        Errors: StoppedError.
        """
        found: list[tuple[Advice, str]] = []

        def answer() -> str | None:
            snapshot, lane = self._driver.snapshot(), self._lane()
            if lane.over:
                raise StoppedError(lane.trouble.message if lane.trouble else f"{lane.title} has ended")
            bottleneck = advised(snapshot, lane, everything=self._state.everything)
            if bottleneck is None or lane.steady.span_ns < STEADY_NS:
                return None
            can_try = [one for one in bottleneck.advice if not one.by_hand]
            found.extend((one, bottleneck.kind) for one in can_try[:1])
            return ""

        why = self._driver.wait(answer, "too little was measured to say what bounds the lane")
        if why:
            raise StoppedError(why)
        return found[0] if found else None

    def _try(self, advice: Advice, bound: str) -> None:
        """Try one change, and leave the better settings in force.

        Errors: StoppedError; the lane has its old settings back then.
        """
        attempt = plan_attempt(self._lane(), advice, bound, self._driver.snapshot().race.knobs)
        self._tell(replace(self._state, attempts=(*self._state.attempts, attempt)))
        self._measured(attempt, self._tell_attempt)

    def _compare_with(self, start: Mapping[str, KnobValue]) -> None:
        """Measure the settings that were found against those at the beginning, unless one attempt did that."""
        lane, changed = self._lane(), best_of(self._state).settings
        kept = [one for one in self._state.attempts[self._state.first :] if one.outcome == KEPT]
        if len(kept) < 2 or not changed:
            return
        restarts = any(one.restarts for one in kept)
        attempt = Attempt(lane.spec.name, dict(start), dict(lane.settings), restarts=restarts)

        def tell(attempt: Attempt) -> None:
            self._tell(replace(self._state, total=attempt))

        self._measured(attempt, tell, starts_changed=True)

    # ------------------------------------------------------------ measuring

    def _measured(
        self, attempt: Attempt, tell: Callable[[Attempt], None], *, starts_changed: bool = False
    ) -> None:
        """Train under both settings by turns until it is decided.

        The new settings are in force at the end if they were kept, or `starts_changed` says they were before.
        """
        self._epoch_trained = starts_changed
        self._driver.controls.set_exclusive(attempt.lane, self._slice_s())
        in_blocks = attempt.restarts or self._fills_a_cache(attempt)
        slices = SLICES_IN_A_BLOCK if in_blocks else SLICES
        first = LOOKS_RESTARTING[0] if attempt.restarts else LOOKS[0]
        outcome, why = "", ""
        try:
            while not outcome and not why:
                for changed in (False, True):
                    why = why or self._bring_into_force(attempt.after if changed else attempt.before)
                    if changed and not why:
                        why = self._wait_for_an_epoch(attempt)
                    if not why:
                        attempt, why = self._block(attempt, changed, slices, tell)
                if len(pairs_of(self._lane(), attempt)) >= first:
                    outcome = decide(self._lane(), attempt)
                    if starts_changed:
                        outcome = outcome and KEPT
        except StoppedError:
            tell(replace(attempt, outcome=STOPPED))
            self._wish(attempt.after if starts_changed else attempt.before)
            raise
        found = gain_of(self._lane(), attempt)
        outcome = REFUSED if why else outcome
        wanted = attempt.after if outcome == KEPT or starts_changed else attempt.before
        tell(replace(attempt, outcome=outcome, reason=why, gain=found))
        trouble = self._bring_into_force(wanted)
        if trouble:
            raise StoppedError(f"the lane did not get its settings back: {trouble}")

    def _block(
        self, attempt: Attempt, changed: bool, slices: int, tell: Callable[[Attempt], None]
    ) -> tuple[Attempt, str]:
        """Train some slices under the settings in force; return the attempt with them, and what went wrong."""
        block = Block(changed, self._driver.snapshot().at_ns)
        blocks = attempt.blocks
        attempt = replace(attempt, blocks=(*blocks, block))
        tell(attempt)
        ended = self._driver.turns_ended(attempt.lane)

        def answer() -> str | None:
            if (failure := self._failure()) is not None:
                return failure
            over = self._driver.turns_ended(attempt.lane) - ended >= slices
            return "" if over and slices_in(self._lane(), attempt, block) else None

        why = self._driver.wait(answer, "no slice ended")
        attempt = replace(attempt, blocks=(*blocks, replace(block, until_ns=self._driver.snapshot().at_ns)))
        tell(attempt)
        return attempt, why

    def _wait_for_an_epoch(self, attempt: Attempt) -> str:
        """Wait, once, until a cache that the change turns on is full: it works from the second epoch on."""
        if self._epoch_trained or not self._fills_a_cache(attempt):
            return ""
        self._epoch_trained = True
        lane = self._lane()
        until = lane.examples + (lane.data_examples or 0)

        def answer() -> str | None:
            if (failure := self._failure()) is not None:
                return failure
            return "" if self._lane().examples >= until else None

        return self._driver.wait(answer, "the cache was not full")

    def _slice_s(self) -> float:
        """Return how long a slice is to last with the steps that the lane trains now."""
        step_ms = self._lane().steady.step_ms(0.5) or 0.0
        return min(LONGEST_S, max(SHORTEST_S, SLICE_STEPS * step_ms / 1e3))

    @staticmethod
    def _fills_a_cache(attempt: Attempt) -> bool:
        return attempt.change.get("cache") is True

    def _failure(self) -> str | None:
        lane = self._lane()
        if not lane.over:
            return None
        return lane.trouble.message if lane.trouble else f"{lane.title} has ended"

    # ------------------------------------------------------------ settings

    def _bring_into_force(self, settings: Mapping[str, KnobValue]) -> str:
        """Set what differs and wait until the lane trains under it; return why that cannot be, or ""."""
        lane = self._lane()
        for knob, value in settings.items():
            if lane.over or lane.settings.get(knob) != value:
                why = self._driver.bring_into_force([lane.spec.name], knob, value)
                if why:
                    return why
                lane = self._lane()
        return ""

    def _wish(self, settings: Mapping[str, KnobValue]) -> None:
        """Ask for settings without waiting: the experiment is stopped."""
        with contextlib.suppress(StoppedError):  # another race: there is nothing to restore
            lane = self._lane()
            for knob, value in settings.items():
                wished = lane.requested[knob].value if knob in lane.requested else lane.settings.get(knob)
                if wished != value:
                    self._driver.controls.set_knob(lane.spec.name, knob, value)

    def _lane(self) -> LaneState:
        return self._driver.lane(self._state.lane)

    def _tell_attempt(self, attempt: Attempt) -> None:
        self._tell(replace(self._state, attempts=(*self._state.attempts[:-1], attempt)))

    def _tell(self, state: TuneState) -> None:
        self._state = state
        self._driver.tell(state)

"""Tuning: tries advice on a lane, and keeps it if it helps."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from tfmon.analysis.bottleneck import Bottleneck
from tfmon.analysis.tuning_trials import LOOKS, advised, best_of, decide, gain_of, plan_attempt
from tfmon.model.knobs import KnobValue
from tfmon.model.lane_state import LaneState
from tfmon.model.series import KEPT, REFUSED, REVERTED, STOPPED, Attempt, Change, Pair, SeriesState, VisitEnded
from tfmon.model.session import Snapshot
from tfmon.model.windows import SliceSpeed
from tfmon.series.engine import Policy, RefusedError, StoppedError
from tfmon.series.lanes import LanesStation

SLICES = 2
"""Slices under one setting, if a change is cheap."""
SLICES_IN_A_BLOCK = LOOKS[0]
"""For a change that costs a process, or an epoch to fill a cache or until a script obeys: one look per block."""
SLICE_STEPS, SHORTEST_S, LONGEST_S = 20, 0.25, 0.5
"""Steps in a slice, within these bounds: short slices give more pairs, but a quarter or more is warm-up."""
STEADY_NS = 1_000_000_000


class Tuning(LanesStation, Policy):
    """Tries the likeliest change of one lane, which trains alone, or changes until nothing helps."""

    visits = 0
    failure = ""
    _settled = False

    def open(self) -> Sequence[Mapping[str, KnobValue]]:
        """Train only this lane."""
        self.controls.set_exclusive(self.lanes[0])
        return super().open()

    def prepare(self, state: SeriesState) -> None:
        """Wait until the bottleneck is known, if required."""
        if self.failure:
            raise StoppedError(self.failure)

        def known() -> bool:
            self.check(state.lane)
            _, lane, bottleneck = self._advised(state)
            return bottleneck is not None and lane.steady.span_ns >= STEADY_NS

        if _may_try(state):
            self.wait(known, "too little was measured to name the bottleneck of the lane")

    def next(self, state: SeriesState, kind: str) -> Attempt | None:
        """Return the likeliest untried change, or at last all kept changes together."""
        attempt, everything = None, state.plan.everything
        if _may_try(state):
            snapshot, lane, bottleneck = self._advised(state)
            causes = [cause for cause in bottleneck.causes if cause.can_try] if bottleneck is not None else []
            if causes and bottleneck is not None:
                choices = len(state.present) + len(causes) if everything else 1
                number = len(state.attempts)
                attempt = plan_attempt(snapshot, state.lane, causes[0], bottleneck.kind, choices, number)
            elif everything:
                attempt = _all_kept(state, lane)
        self._settled = attempt is None
        return attempt

    def more(self, state: SeriesState, number: int, pairs: int) -> bool:
        """Continue until the change is decided."""
        return not decide(state.attempts[number])

    def settle(self, attempt: Attempt, ended: VisitEnded, *, stopped: bool) -> VisitEnded:
        """Add outcome and gain."""
        outcome = REFUSED if ended.refused else STOPPED if stopped else decide(attempt) or REVERTED
        if attempt.of_lane.whole and outcome == REVERTED:
            outcome = KEPT
        return replace(ended, outcome=outcome, gain=gain_of(attempt))

    def settled(self, state: SeriesState) -> bool:
        """Return whether no change was left."""
        return self._settled

    def _advised(self, state: SeriesState) -> tuple[Snapshot, LaneState, Bottleneck | None]:
        snapshot = self.session.snapshot()
        lane = snapshot.lane(state.lane)
        return snapshot, lane, advised(snapshot, lane, everything=state.plan.everything)

    def restore(self) -> None:
        """Continue the other lanes."""
        self.controls.set_exclusive("")

    def _renew(self) -> None:
        """Start a process with another memory layout."""
        name = self.lanes[0]
        before = self.lane(name).process.number
        self.controls.restart([name])
        self.wait(lambda: self.lane(name).process.number > before, "the lane was not started again")
        self.wait_until_racing([name])

    def measure(self, attempt: Attempt, add: Callable[[Pair, float], bool]) -> None:
        """Train under both settings until a decision, then under the better ones."""
        self._attempt, self._add = attempt, add
        self._change = change = attempt.of_lane
        self._fills_a_cache = attempt.settings.get("cache") is True
        self._cache_full = change.whole
        self.visits += 1
        if self.visits > 1 and not change.whole and self.session.snapshot().race.fresh:
            self._renew()
        step_ms = self._tuned().steady.step_ms(0.5) or 0.0
        slice_s = min(LONGEST_S, max(SHORTEST_S, SLICE_STEPS * step_ms / 1e3))
        self.controls.set_exclusive(change.lane, slice_s)
        in_blocks = bool(self._tuned().script.command) or change.restarts or self._fills_a_cache
        slices = SLICES_IN_A_BLOCK if in_blocks else SLICES
        try:
            while self._compare(slices):
                pass
        except StoppedError:
            self._request(self._attempt.settings_after if change.whole else change.before)
            raise
        except RefusedError:
            self._restore(kept=change.whole)
            raise
        self._restore(kept=change.whole or decide(self._attempt) == KEPT)

    def _compare(self, slices: int) -> bool:
        """Train a block under each setting; return whether to continue."""
        more = True
        self._set(self._change.before)
        since_ns = self.session.snapshot().at_ns
        self._wait_for_slices(slices, since_ns)
        before = self._slices(since_ns)
        self._set(self._attempt.settings_after)
        self._wait_for_an_epoch()
        since_ns = self.session.snapshot().at_ns
        try:
            self._wait_for_slices(slices, since_ns)
        finally:
            for pair, took_s in _paired(before, self._slices(since_ns)):
                self._attempt = replace(self._attempt, pairs=(*self._attempt.pairs, pair))
                more = self._add(pair, took_s)
        return more

    def _restore(self, *, kept: bool) -> None:
        """Restore the settings; a failure ends the series."""
        try:
            self._set(self._attempt.settings_after if kept else self._change.before)
        except RefusedError as failed:
            self.failure = f"the lane did not get its settings back: {failed}"

    def _wait_for_slices(self, slices: int, since_ns: int) -> None:
        before = self.slices[self._change.lane]

        def trained() -> bool:
            self.check(self._change.lane)
            ended = self.slices[self._change.lane] - before >= slices
            return ended and bool(self._slices(since_ns))

        self.wait(trained, "no slice ended")

    def _slices(self, since_ns: int) -> list[SliceSpeed]:
        """Return the later slices, or empty in another race."""
        with contextlib.suppress(StoppedError):
            return [part for part in self._tuned().slices if part.at_ns > since_ns]
        return []

    def _wait_for_an_epoch(self) -> None:
        """Wait until a cache is full: it helps from the second epoch on."""
        if self._cache_full or not self._fills_a_cache:
            return
        self._cache_full = True
        lane = self._tuned()
        until = lane.totals.examples + (lane.process.data_examples or 0)

        def full() -> bool:
            self.check(self._change.lane)
            return self._tuned().totals.examples >= until

        self.wait(full, "the cache was not full")

    def _set(self, settings: Mapping[str, KnobValue]) -> None:
        for knob, value in settings.items():
            lane = self._tuned()
            if lane.over or knob in lane.changes.requested or lane.settings.get(knob) != value:
                self.set_knob([lane.spec.name], knob, value)

    def _request(self, settings: Mapping[str, KnobValue]) -> None:
        """Request settings without waiting, because the series is stopped."""
        with contextlib.suppress(StoppedError):  # another race
            lane = self._tuned()
            for knob, value in settings.items():
                requested = lane.changes.requested.get(knob)
                if (requested.value if requested is not None else lane.settings.get(knob)) != value:
                    self.controls.set_knob(lane.spec.name, knob, value)

    def _tuned(self) -> LaneState:
        return self.lane(self._change.lane)


def _paired(old: Sequence[SliceSpeed], new: Sequence[SliceSpeed]) -> Iterator[tuple[Pair, float]]:
    for before, now in zip(old, new, strict=False):
        if before.examples and now.examples:
            pair = Pair(now.log - before.log, False, now.process, before.log)
            yield pair, (now.at_ns - before.at_ns) / 1e9


def _may_try(state: SeriesState) -> bool:
    """Return whether another change may be tried."""
    return state.whole is None and (state.plan.everything or not state.present)


def _all_kept(state: SeriesState, lane: LaneState) -> Attempt | None:
    """Return an attempt of all kept changes, if several."""
    kept = [attempt for attempt in state.present if attempt.outcome == KEPT]
    if len(kept) < 2 or not best_of(state)[0]:
        return None
    before = state.present[0].of_lane.before
    changed = {knob: value for knob, value in lane.settings.items() if before.get(knob) != value}
    restarts = any(attempt.of_lane.restarts for attempt in kept)
    change = Change(lane.spec.name, dict(before), restarts=restarts, whole=True)
    return Attempt(len(state.attempts), "", changed, change)

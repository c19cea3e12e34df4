"""Tuning: advice is tried on a lane of a race, and kept if it helps."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from tfmon.analysis.tuning_trials import LOOKS, advised, best_of, decide, gain_of, plan_attempt
from tfmon.model.knobs import KnobValue
from tfmon.model.lane_state import LaneState
from tfmon.model.series import (
    KEPT,
    REFUSED,
    REVERTED,
    STOPPED,
    Attempt,
    Change,
    Figures,
    Pair,
    SeriesState,
    VisitEnded,
)
from tfmon.model.session import Snapshot
from tfmon.model.windows import SliceSpeed
from tfmon.series.engine import Policy, RefusedError, StoppedError, Visit
from tfmon.series.lanes import LanesStation

SLICES = 2
"""In a row under one setting, if a change is cheap."""
SLICES_IN_A_BLOCK = LOOKS[0]
"""For a change that costs a process, or an epoch until a cache is full or a script obeys: one look a block."""
SLICE_STEPS, SHORTEST_S, LONGEST_S = 20, 0.25, 0.5
"""Steps in a slice, within these bounds: at least a quarter is warm-up, and shorter slices give more pairs."""
STEADY_NS = 1_000_000_000


class TuningPolicy(Policy):
    """Tries the likeliest change: one, or all until nothing helps."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot
        self._settled = False

    def ready(self, state: SeriesState, snapshot: Snapshot) -> bool:
        """Return whether the bottleneck is known, if required."""
        if state.whole is not None or (state.present and not state.plan.everything):
            return True
        lane = snapshot.lane(state.lane)
        bottleneck = advised(snapshot, lane, everything=state.plan.everything)
        return bottleneck is not None and lane.steady.span_ns >= STEADY_NS

    def next(self, state: SeriesState, kind: str) -> Attempt | None:
        """Return the likeliest untried change, or at last all kept changes together."""
        tried, everything = state.present, state.plan.everything
        attempt = None
        if state.whole is None and (everything or not tried):
            snapshot = self._snapshot()
            lane = snapshot.lane(state.lane)
            bottleneck = advised(snapshot, lane, everything=everything)
            causes = [cause for cause in bottleneck.causes if cause.can_try] if bottleneck is not None else []
            if causes and bottleneck is not None:
                choices = len(tried) + len(causes) if everything else 1
                number = len(state.attempts)
                attempt = plan_attempt(snapshot, state.lane, causes[0], bottleneck.kind, choices, number)
            elif everything:
                attempt = all_kept(state, lane)
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


def all_kept(state: SeriesState, lane: LaneState) -> Attempt | None:
    """Return the present against the initial settings, unless measured."""
    kept = [one for one in state.present if one.outcome == KEPT]
    if len(kept) < 2 or not best_of(state).settings:
        return None
    before = state.present[0].of_lane.before
    changed = {knob: value for knob, value in lane.settings.items() if before.get(knob) != value}
    restarts = any(one.of_lane.restarts for one in kept)
    change = Change(lane.spec.name, dict(before), restarts=restarts, whole=True)
    return Attempt(len(state.attempts), "", changed, change)


class TuningStation(LanesStation):
    """One lane of a race, which trains alone."""

    visits = 0
    failure = ""

    def open(self) -> Sequence[Mapping[str, KnobValue]]:
        """Train only this lane."""
        self.controls.set_exclusive(self.lanes[0])
        return super().open()

    def prepare(self, ready: Callable[[Snapshot], bool]) -> None:
        """Wait until the bottleneck is known."""
        if self.failure:
            raise StoppedError(self.failure)

        def known() -> bool:
            self.check(self.lanes[0])
            return ready(self.session.snapshot())

        self.wait(known, "too little was measured to name the bottleneck of the lane")

    def visit(self, attempt: Attempt, add: Callable[[Pair, float], bool]) -> Visit:
        """Return the trial of a change."""
        return TuningVisit(self, attempt, add)

    def restore(self) -> None:
        """Continue the other lanes."""
        self.controls.set_exclusive("")

    def renew(self) -> None:
        """Start a new process, because of its memory layout."""
        name = self.lanes[0]
        before = self.lane(name).process.number
        self.controls.restart([name])
        self.wait(lambda: self.lane(name).process.number > before, "the lane was not started again")
        self.wait_until_racing([name])


class TuningVisit(Visit):
    """The trial of a change: blocks of slices under both settings alternate."""

    def __init__(self, station: TuningStation, attempt: Attempt, add: Callable[[Pair, float], bool]) -> None:
        self._station = station
        self._attempt = attempt
        self._change = attempt.of_lane
        self._add = add
        self._fills_a_cache = attempt.settings.get("cache") is True
        self._cache_full = self._change.whole

    def run(self) -> Figures | None:
        """Train under both settings until a decision, then under the better ones."""
        station, change = self._station, self._change
        station.visits += 1
        if station.visits > 1 and not change.whole and station.session.snapshot().race.fresh:
            station.renew()
        step_ms = self._lane().steady.step_ms(0.5) or 0.0
        slice_s = min(LONGEST_S, max(SHORTEST_S, SLICE_STEPS * step_ms / 1e3))
        station.controls.set_exclusive(change.lane, slice_s)
        in_blocks = bool(self._lane().script.command) or change.restarts or self._fills_a_cache
        slices = SLICES_IN_A_BLOCK if in_blocks else SLICES
        kept = change.whole
        try:
            while self._compare(slices):
                pass
            kept = kept or decide(self._attempt) == KEPT
        except StoppedError:
            self._request(self._attempt.after if change.whole else change.before)
            raise
        except RefusedError:
            self._restore(kept=kept)
            raise
        self._restore(kept=kept)
        return None

    def _compare(self, slices: int) -> bool:
        """Train a block under each setting; return whether more are required."""
        more = True
        self._set(self._change.before)
        before = self._block(slices)
        self._set(self._attempt.after)
        self._wait_for_an_epoch()
        since_ns = self._station.session.snapshot().at_ns
        try:
            self._wait_for_slices(slices, since_ns)
        finally:
            for pair, took_s in _paired(before, self._slices(since_ns)):
                self._attempt = replace(self._attempt, pairs=(*self._attempt.pairs, pair))
                more = self._add(pair, took_s)
        return more

    def _block(self, slices: int) -> list[SliceSpeed]:
        since_ns = self._station.session.snapshot().at_ns
        self._wait_for_slices(slices, since_ns)
        return self._slices(since_ns)

    def _restore(self, *, kept: bool) -> None:
        """A failure ends the series with the reason."""
        try:
            self._set(self._attempt.after if kept else self._change.before)
        except RefusedError as failed:
            self._station.failure = f"the lane did not get its settings back: {failed}"

    def _wait_for_slices(self, slices: int, since_ns: int) -> None:
        before = self._station.slices[self._change.lane]

        def trained() -> bool:
            self._station.check(self._change.lane)
            ended = self._station.slices[self._change.lane] - before >= slices
            return ended and bool(self._slices(since_ns))

        self._station.wait(trained, "no slice ended")

    def _slices(self, since_ns: int) -> list[SliceSpeed]:
        """Empty in another race."""
        with contextlib.suppress(StoppedError):
            return [part for part in self._lane().slices if part.at_ns > since_ns]
        return []

    def _wait_for_an_epoch(self) -> None:
        """A cache helps from the second epoch on."""
        if self._cache_full or not self._fills_a_cache:
            return
        self._cache_full = True
        lane = self._lane()
        until = lane.totals.examples + (lane.process.data_examples or 0)

        def full() -> bool:
            self._station.check(self._change.lane)
            return self._lane().totals.examples >= until

        self._station.wait(full, "the cache was not full")

    def _set(self, settings: Mapping[str, KnobValue]) -> None:
        for knob, value in settings.items():
            lane = self._lane()
            if lane.over or knob in lane.changes.requested or lane.settings.get(knob) != value:
                self._station.set_knob([lane.spec.name], knob, value)

    def _request(self, settings: Mapping[str, KnobValue]) -> None:
        """The series is stopped."""
        with contextlib.suppress(StoppedError):  # another race
            lane = self._lane()
            for knob, value in settings.items():
                requested = lane.changes.requested.get(knob)
                if (requested.value if requested is not None else lane.settings.get(knob)) != value:
                    self._station.controls.set_knob(lane.spec.name, knob, value)

    def _lane(self) -> LaneState:
        return self._station.lane(self._change.lane)


def _paired(old: Sequence[SliceSpeed], new: Sequence[SliceSpeed]) -> Iterator[tuple[Pair, float]]:
    """Without empty slices."""
    for before, now in zip(old, new, strict=False):
        if before.examples and now.examples:
            base = math.log(before.examples_per_s)
            yield (
                Pair(math.log(now.examples_per_s) - base, False, now.process, base),
                (now.at_ns - before.at_ns) / 1e9,
            )

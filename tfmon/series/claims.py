"""The policy of the scenarios' claims."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from tfmon.analysis.intervals import Looks
from tfmon.analysis.statistics import compare
from tfmon.analysis.sweep_ranking import PAIRS_OF_A_VISIT
from tfmon.model.race import BetweenProcesses, Claim, judge
from tfmon.model.readings import SPENDING, Estimate
from tfmon.model.series import CLAIMS, Attempt, SeriesPlan, SeriesState, VisitEnded
from tfmon.series.engine import Policy

NARROW = 0.1
"""Half width, as a share of the ratio, at which a decided race ends early."""
LONGEST_S, SHORTEST_S = 12.0, 6.0
ALL_S = 540.0
"""For all claims; the rest of 10 minutes is for slow starts."""
START_S = 6.0
"""Time of a visit besides its race, to load TensorFlow twice."""
REPEATS_FROM_S = 60.0
"""Longer claims are measured in several visits with new processes."""


class ClaimPolicy(Policy):
    """Measures one claim after the other."""

    def __init__(self, claims: Sequence[Claim], seconds: float | None = None) -> None:
        """`seconds` limits each claim; `None`: 10 minutes for all."""
        self.between: BetweenProcesses | None = None
        """Of the machines in the present race."""
        self.length_s = 0.0
        self._claims, self._seconds = claims, seconds
        self._since_s = time.monotonic()

    def begin(self) -> SeriesState:
        """Return an attempt for each claim."""
        attempts = (Attempt(number, "", {}) for number in range(len(self._claims)))
        return SeriesState(SeriesPlan(CLAIMS), tuple(attempts))

    def next(self, state: SeriesState, kind: str) -> Attempt | None:
        """Return the first claim without an outcome."""
        due = [attempt for attempt in state.attempts if not (attempt.outcome or attempt.refused)]
        if due and not due[0].visits:
            own_s = self._claims[due[0].number].seconds
            start_s = self._start_s(state)
            spent_s = time.monotonic() - self._since_s
            self.length_s = self._seconds or own_s or length_of(ALL_S - spent_s, len(due), start_s)
        return due[0] if due else None

    def more(self, state: SeriesState, number: int, pairs: int) -> bool:
        """Continue until the claim is decided or over, or new processes are due."""
        renews = self.length_s >= REPEATS_FROM_S and pairs >= PAIRS_OF_A_VISIT
        return not renews and not self._over(state.attempts[number])

    def settle(self, attempt: Attempt, ended: VisitEnded, *, stopped: bool) -> VisitEnded:
        """Add outcome and ratio of a claim."""
        if ended.refused or not self._over(attempt):
            return ended
        ratio = self.ratio(attempt)
        if ratio is None:
            return replace(ended, refused="too few slices were measured; a longer --seconds may do")
        return replace(ended, outcome=judge(self._claims[attempt.number], ratio), gain=ratio)

    def settled(self, state: SeriesState) -> bool:
        """Return whether every claim has an outcome."""
        return all(attempt.outcome or attempt.refused for attempt in state.attempts)

    def ratio(self, attempt: Attempt) -> Estimate | None:
        """Return the ratio so far. The race may end before its length."""
        result = compare(attempt.pairs, self.between)
        share = min(1.0, attempt.measured_s / self.length_s)
        return result.estimate(Looks(SPENDING, share)) if result is not None else None

    def left_s(self, state: SeriesState) -> float:
        """Return the remaining time."""
        due = sum(not (attempt.outcome or attempt.refused) for attempt in state.attempts)
        return due * (fmean(state.visits_s) if state.visits_s else START_S + (self.length_s or LONGEST_S))

    def _over(self, attempt: Attempt) -> bool:
        ratio = self.ratio(attempt)
        decided = ratio is not None and judge(self._claims[attempt.number], ratio) != "too close to call"
        narrow = ratio is not None and ratio.half_width <= NARROW
        return (decided and narrow) or attempt.measured_s >= self.length_s

    @staticmethod
    def _start_s(state: SeriesState) -> float:
        """Return the mean time of a visit besides its race."""
        if not state.visits_s:
            return START_S
        measured_s = [attempt.measured_s for attempt in state.attempts if attempt.measured_s] or [0.0]
        return max(0.0, fmean(state.visits_s) - fmean(measured_s))


def length_of(left_s: float, races: int, start_s: float) -> float:
    """Return the length of a race, so that all fit into `left_s`."""
    return min(LONGEST_S, max(SHORTEST_S, left_s / max(1, races) - start_s))

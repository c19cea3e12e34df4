"""The policy of a sweep, with early elimination."""

from __future__ import annotations

from tfmon.analysis.statistics import compare
from tfmon.analysis.sweep_ranking import OPEN, PAIRS_OF_A_VISIT, Ranking, judge, rank
from tfmon.model.series import Attempt, SeriesState
from tfmon.series.engine import Policy


class SweepPolicy(Policy):
    """Gives every combination that may win one visit before any gets another."""

    def __init__(self) -> None:
        self._known: Ranking | None = None

    def next(self, state: SeriesState, kind: str) -> Attempt | None:
        """Return an open combination with the fewest visits."""
        self._known = rank(state, self._known)
        waiting = (row.attempt for row in self._known.rows if row.outcome == OPEN and row.attempt.kind == kind)
        due = (attempt for attempt in waiting if attempt.number not in state.running)
        return min(due, key=lambda attempt: (attempt.visits, attempt.number), default=None)

    def more(self, state: SeriesState, number: int, pairs: int) -> bool:
        """Return whether the result is open, and more rounds narrow its interval."""
        known, before = state.attempts[number], self._known
        assert before is not None, "it was chosen"
        row = judge(known, state.plan, before.choices[known.kind], before.floors[known.kind], compare(known.pairs))
        return row.outcome == OPEN and pairs < PAIRS_OF_A_VISIT

    def settled(self, state: SeriesState) -> bool:
        """Return whether every combination is settled."""
        return rank(state, self._known).over

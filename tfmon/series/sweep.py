"""The policy of a sweep, with early elimination."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tfmon.analysis.sweep_ranking import OPEN, PAIRS_OF_A_VISIT, Ranking, judge, next_due, rank
from tfmon.model.series import Attempt, SeriesState, SeriesStep
from tfmon.series.engine import Policy, Series, Station


class SweepPolicy(Policy):
    """Gives every combination that may win one visit before any gets another."""

    def __init__(self) -> None:
        self._known: Ranking | None = None
        self._final: SeriesState | None = None

    def ranking(self, state: SeriesState) -> Ranking:
        """Return the result so far; reuses figures of unchanged combinations."""
        if self._known is None or self._known.state is not state:
            self._known = rank(state, self._known)
        return self._known

    def next(self, state: SeriesState, kind: str) -> Attempt | None:
        """Return an open combination with the fewest visits."""
        number = next_due(self.ranking(state).rows, kind, state.running)
        if number is None and not state.running and self._final is not state:
            self._known = self._final_ranking(state)  # a combination may need another visit now
            number = next_due(self._known.rows, kind, state.running)
        return None if number is None else state.attempts[number]

    def _final_ranking(self, state: SeriesState) -> Ranking:
        self._final = state
        return rank(state)

    def more(self, state: SeriesState, number: int, pairs: int) -> bool:
        """Return whether the result is open, and more rounds narrow its interval."""
        known, before = state.attempts[number], self._known
        assert before is not None, "it was chosen"
        row = judge(known, state.plan, before.choices[known.kind], before.floors[known.kind])
        return row.outcome == OPEN and pairs < PAIRS_OF_A_VISIT

    def settled(self, state: SeriesState) -> bool:
        """Return whether every combination is settled."""
        self._known = self._final_ranking(state)
        return self._known.over


class Sweep(Series):
    """A sweep on one or several stations."""

    def __init__(
        self, state: SeriesState, stations: Sequence[Station], keep: Callable[[SeriesStep], object]
    ) -> None:
        self._ranks = SweepPolicy()
        super().__init__(state, self._ranks, stations, keep)

    @property
    def ranking(self) -> Ranking:
        """The ranking of the measured combinations."""
        with self._news:
            return self._ranks.ranking(self.state)

"""Finds which updates make a step.

A step is one update. If several optimizers alternate, it is one round, which ends with an optimizer's only update.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tfmon.hooks.optimizers import Updater
from tfmon.hooks.sources import Past

SETTLED = 16
"""Consecutive updates after which an optimizer trains alone."""
NO_ROUNDS = "several optimizers update the weights in no steady order. Tell tfmon what a step is: report.step"


class Rounds:
    """Counts the steps that updates complete. Thread: the loop's.

    The order of optimizers is known after the first update of round two.
    """

    def __init__(self) -> None:
        self.leader: Updater | None = None
        """Updates once per round. None if each update is a step."""
        self.unsteady = False
        """Whether no step can be reported."""
        self.runs: list[list[Any]] = []
        """Updaters of a round, with consecutive updates."""
        self.updaters: list[Updater] = []
        self.cut = False
        """Whether an interrupted update may be counted."""
        self.past = Past()
        self._run = self._made = 0
        self._between: set[Updater] = set()

    @property
    def sure(self) -> bool:
        """Whether the loop's steps are recognized."""
        return self.settled or self.leader is not None

    def missed(self) -> Iterator[tuple[Updater, int]]:
        """Yield updaters with missed or extra updates."""
        for updater in self.updaters:
            more = updater.missed()
            if more == 1 and self.cut:
                self.cut = False
            elif more:
                yield updater, more

    def take_past(self) -> Past:
        """Return steps that were one round."""
        past, self.past = self.past, Past()
        return past

    @property
    def settled(self) -> bool:
        """Whether one updater trains alone."""
        return len(self.runs) == 1 and self.runs[0][1] >= SETTLED

    def add(self, updater: Updater, updates: int) -> int:
        """Return the completed steps. If the call sets `leader`, all earlier updates were one step."""
        if self.leader is not None:
            return self._in_round(updater, updates)
        runs = self.runs
        if runs and runs[-1][0] is updater:
            runs[-1][1] += updates
            if len(runs) > 1 and runs[-1][1] >= SETTLED:
                self._between.update(seen for seen, _ in runs[:-1])
                del runs[:-1]
            return updates
        if not any(seen is updater for seen, _ in runs):
            if self.settled:
                self._between.add(runs.pop()[0])
            runs.append([updater, updates])
            return updates
        once = [seen for seen, count in runs if count == 1]
        long = any(count >= SETTLED for _, count in runs)
        if runs[0][0] is not updater or not once or long or any(seen in self._between for seen, _ in runs):
            self.unsteady = True
            return updates
        self.leader = once[-1]
        self._between.update(seen for seen, _ in runs)
        self._run = self._made = 0
        return self._in_round(updater, updates)

    def _in_round(self, updater: Updater, updates: int) -> int:
        expected, count = self.runs[self._run]
        if updater is not expected:
            self.unsteady |= self._run > 0 or self._made > 0 or updater in self._between
            self.leader, self.runs = None, [[updater, updates]]
            return updates
        self._made += updates
        self.unsteady |= self._made > count
        if self._made >= count:
            self._run, self._made = (self._run + 1) % len(self.runs), 0
        return int(updater is self.leader)

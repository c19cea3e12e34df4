"""Finds which updates make a step, and compares with the optimizers' counts.

A step is one update, as `optimizer.iterations` counts. If several optimizers alternate, a step is one round.
The optimizer that updates once per round counts the rounds.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from operator import sub
from typing import Any

from tfmon.script.looking import logs_operations
from tfmon.script.sources import Past

SETTLED = 16
"""After this many consecutive updates, an optimizer trains alone and not in rounds."""
NO_ROUNDS = "several optimizers update the weights in no steady order. Tell tfmon what a step is: report.step"


class Updater:
    """One or several optimizers of a function, or a function that updates weights by hand."""

    def __init__(self, optimizers: Iterable[Any], name: str) -> None:
        self.name = name
        optimizers = list(optimizers)
        self.by_hand = not optimizers
        self.varies = any(hasattr(one, "inner_optimizer") for one in optimizers)
        """Whether a call may make any number of updates (loss scaling, branch, loop)."""
        self._counters = [one for one in map(counter_of, optimizers) if one is not None]
        self.every = max((every for _, every in self._counters), default=1)
        """Calls per update. The optimizer may accumulate gradients."""
        self.rebase()

    def rebase(self) -> None:
        """Compare with the optimizers' own counts from now on."""
        self.made = 0
        self._base = self._read()

    def _read(self) -> list[int]:
        now = [] if logs_operations() else [read() for read, _ in self._counters]
        return [one for one in now if one is not None]

    @property
    def counted(self) -> int | None:
        """Lowest number of calls that an optimizer has counted since `rebase`, or None if it is unknown."""
        now = self._read()
        return min(map(sub, now, self._base)) if now and len(now) == len(self._base) else None

    def made_more(self, calls: int) -> int:
        """Record calls that apply gradients. Return the number of completed updates."""
        first = (self._base[0] if self._base else 0) + self.made
        self.made += calls
        return (first + calls) // self.every - first // self.every

    def missed(self) -> int:
        """Return the updates that the optimizers counted and that were not seen since the last call.

        A negative number is 0 if each call updates once: the script has reset the counter.
        """
        counted = self.counted
        if counted is None or counted == self.made:
            return 0
        missed, self.made = counted - self.made, counted
        return missed if missed > 0 or self.varies or self.every > 1 else 0

    def differs(self, more: int) -> str:
        """Return why a step is unknown if the optimizers counted `more` updates."""
        counted = f"{abs(more)} {'more' if more > 0 else 'fewer'} update{'s' if abs(more) > 1 else ''}"
        why = "not each call updates once" if self.varies else "it was applied unseen, or its counter was set"
        return (
            f"{self.name} has counted {counted} than calls were seen: {why}. "
            "Tell tfmon what a step is: report.step"
        )


def counting(optimizer: Any) -> tuple[int, Any]:  # noqa: ANN401
    """Return an optimizer's calls per update, and its counter variable if it has one."""
    inner = getattr(optimizer, "inner_optimizer", None) or optimizer
    every = int(getattr(inner, "gradient_accumulation_steps", None) or 1)
    return every, inner._iterations if every > 1 else getattr(inner, "iterations", None)


def counter_of(optimizer: Any) -> tuple[Callable[[], int | None], int] | None:  # noqa: ANN401
    """Return an optimizer's call counter, and its calls per update. None if it has no counter."""
    every, counter = counting(optimizer)
    if not hasattr(counter, "numpy"):
        return None
    inner = getattr(counter, "_value", None)
    variable: Any = inner if hasattr(inner, "assign_sub") else counter
    kept = weakref.ref(variable)
    plain = type(variable).__name__ == "ResourceVariable"
    if plain:  # its resource stays until the last updates are compared, and keeps no optimizer
        from tensorflow.python.ops.gen_resource_variable_ops import read_variable_op

        handle, kind = variable.handle, variable.dtype
        return lambda: int(read_variable_op(handle, kind).numpy()), every

    def read() -> int | None:
        counter = kept()
        return None if counter is None else int(counter.numpy())

    return read, every


class Rounds:
    """Returns how many steps each update completes. Thread: the loop's.

    The order of optimizers is known after the first update of round two. If it changes, no step is known.
    """

    def __init__(self) -> None:
        self.leader: Updater | None = None
        """The updater that updates once per round. None if each update is a step."""
        self.unsteady = False
        """Whether no step can be reported."""
        self.runs: list[list[Any]] = []
        """Updaters of a round, each with its number of consecutive updates."""
        self.updaters: list[Updater] = []
        self.cut = False
        """Whether an update was interrupted. The optimizer may have counted it."""
        self.past = Past()
        """Steps that may be parts of a round."""
        self._run = self._made = 0
        self._between: set[Updater] = set()

    @property
    def sure(self) -> bool:
        """Whether it is known what a step is."""
        return self.settled or self.leader is not None

    def missed(self) -> Iterator[tuple[Updater, int]]:
        """Yield the updaters with missed or extra updates, and their number."""
        for updater in self.updaters:
            more = updater.missed()
            if more == 1 and self.cut:
                self.cut = False
            elif more:
                yield updater, more

    def take_past(self) -> Past:
        """Return and forget the steps that were one round."""
        past, self.past = self.past, Past()
        return past

    @property
    def settled(self) -> bool:
        """Whether one updater trains by itself."""
        return len(self.runs) == 1 and self.runs[0][1] >= SETTLED

    def plus(self, updater: Updater, updates: int) -> int:
        """Return how many steps an update completes. If it sets `leader`, all updates before were one step."""
        if self.leader is not None:
            return self._in_round(updater, updates)
        runs = self.runs
        if runs and runs[-1][0] is updater:
            runs[-1][1] += updates
            if len(runs) > 1 and runs[-1][1] >= SETTLED:
                self._between.update(one for one, _ in runs[:-1])
                del runs[:-1]
            return updates
        if not any(one is updater for one, _ in runs):
            if self.settled:
                self._between.add(runs.pop()[0])
            runs.append([updater, updates])
            return updates
        once = [one for one, count in runs if count == 1]
        long = any(count >= SETTLED for _, count in runs)
        if runs[0][0] is not updater or not once or long or any(one in self._between for one, _ in runs):
            self.unsteady = True
            return updates
        self.leader = once[-1]
        self._between.update(one for one, _ in runs)
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

"""The iterators of a script."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any

from tfmon.hooks.counts import LOOP_IN_GRAPH, GradientRows, examples_of, is_batched
from tfmon.hooks.dataset_chain import chain_of
from tfmon.hooks.inspection import line_now
from tfmon.system.lane_clock import lane_clock

Pull = tuple["BatchSource", frozenset[int]]
"""An iterator, and the possible batch sizes."""


def nothing(*_: object) -> None:
    """Do nothing, and return nothing."""


class BatchSource:
    """An iterator of batches."""

    def __init__(self, iterator: object) -> None:
        self.ref = weakref.ref(iterator)
        self.dataset: Callable[[], Any] = nothing
        self.batched = is_batched(getattr(iterator, "_dataset", None))
        self.over = self.trained = False
        self.pulls = self.strange = self.steps = self.began_ns = self.first_ns = self.wait_ns = 0
        self.anew = ""
        """Line that makes such an iterator in each step, or empty."""
        self.last_step = -2

    @property
    def open(self) -> bool:
        """Whether more batches may follow."""
        return not self.over and self.ref() is not None


class SeenStep:
    """Observations of a step. Units: ns."""

    def __init__(self) -> None:
        self.begun = self.in_graph = False
        self.began_ns = self.updated_ns = 0
        self.fed: list[BatchSource] = []
        self.gradient_rows: Counter[GradientRows] = Counter()
        self.updates = self.due = 0
        self.loss: Any = None
        self.mark: object = None
        self.alike: object = None
        """Function or optimizer of the last update, if steps may be bundled."""

    def examples(self, pulled: Counter[Pull]) -> int | str:
        """Return the examples that the feed does not count, or why they are unknown."""
        if self.in_graph:
            return 0
        return LOOP_IN_GRAPH if self.due > 1 else examples_of(pulled, self.gradient_rows, self.updates)

    def of_one_batch(self, pulled: Counter[Pull]) -> object:
        """Return the mark of the only update, if the step has a single batch."""
        read, gradients = [*pulled.elements()], [*self.gradient_rows.elements()]
        if self.in_graph or not self.updates == self.due == len(gradients) == 1 or len(read) != len(self.fed):
            return None
        sizes = read[0][1] if len(read) == 1 else frozenset() if read else frozenset(gradients[0])
        return self.mark if len(sizes) == 1 and gradients[0] and sizes == {gradients[0][0]} else None


class Past:
    """Sums over steps that may be parts of one round."""

    def __init__(self) -> None:
        self.steps = self.examples = 0
        self.pulled: Counter[Pull] = Counter()
        self.gradient_rows: Counter[GradientRows] = Counter()

    def add(self, pulled: Counter[Pull], gradient_rows: Counter[GradientRows], examples: int) -> None:
        """Add a step."""
        self.pulled.update(pulled)
        self.gradient_rows.update(gradient_rows)
        self.steps += 1
        self.examples += examples


class Sources:
    """The iterators of a loop. Thread: the loop's."""

    def __init__(self) -> None:
        self.pulled: Counter[Pull] = Counter()
        self.making: dict[BatchSource, int] = {}
        """Time to make each new iterator."""
        self.main: BatchSource | None = None
        """The iterator whose end ends the epoch."""
        self._known: dict[int, BatchSource] = {}
        self._made: weakref.WeakKeyDictionary[Any, dict[Hashable, BatchSource]] = weakref.WeakKeyDictionary()

    @property
    def reads(self) -> object:
        """The open iterator that the loop reads."""
        return self.main.ref() if self.main is not None and self.main.open else None

    @property
    def feeds(self) -> tuple[tuple[object, int], ...]:
        """The step's iterators, with examples (0 if unknown)."""
        rows = {source: next(iter(rows)) if len(rows) == 1 else 0 for source, rows in self.pulled}
        return tuple((source.ref(), count) for source, count in rows.items())

    def source_of(self, iterator: object) -> BatchSource:
        """Return the source of an iterator. Ended sources are removed."""
        source = self._known.get(id(iterator))
        if source is not None and source.ref() is iterator:
            return source
        for key in [key for key, source in self._known.items() if not source.open]:
            del self._known[key]
        source = self._known[id(iterator)] = BatchSource(iterator)
        return source

    def earlier(self, dataset: Any, position: Hashable) -> BatchSource | None:
        """Return the previous iterator from this position, if it gave a single batch."""
        for depth, node in enumerate(chain_of(dataset)):
            if (source := self._made.get(node, {}).get((position, depth))) is not None:
                alike = source.pulls - source.over == 1 and (not depth or source.dataset() is None)
                return source if alike else None
        return None

    def made(self, iterator: object, dataset: Any, position: Hashable, began_ns: int) -> None:
        """Record an iterator made since `began_ns`."""
        earlier, source = self.earlier(dataset, position), self.source_of(iterator)
        source.dataset = weakref.ref(dataset)
        if earlier is not None:
            source.trained, source.last_step = earlier.trained, earlier.last_step
            self.making[source] = lane_clock.now_ns() - began_ns
            source.anew = earlier.anew or line_now()
        for depth, node in enumerate(chain_of(dataset)):
            self._made.setdefault(node, {})[position, depth] = source

    def received(self, source: BatchSource, rows: frozenset[int]) -> None:
        """Record a batch with its possible sizes."""
        if all(pulled is not source for pulled, _ in self.pulled):
            source.wait_ns = self.making.pop(source, 0)
            source.first_ns = source.began_ns - source.wait_ns
        self.pulled[source, rows] += 1
        source.wait_ns += lane_clock.now_ns() - source.began_ns

    def feed(self, step: int) -> list[BatchSource]:
        """Return the sources of a step's first update.

        If a source has trained before, other sources count after two consecutive steps.
        """
        for source, rows in list(self.pulled):
            if not (source.open or source.trained or source.last_step == step - 1):
                source.last_step = step
                del self.pulled[source, rows]
        sources = list(dict.fromkeys(source for source, _ in self.pulled))
        known = any(source.trained for source in sources) or (step > 0 and self.main is None)
        fed = [source for source in sources if source.trained or not known or source.last_step == step - 1]
        for source in sources:
            source.last_step = step
        if not fed:
            self.pulled.clear()
        elif self.main is None or not self.main.open:
            self.main = fed[0]
        return fed

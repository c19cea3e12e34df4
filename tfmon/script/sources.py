"""The iterators that a script pulls batches from, and the examples of a step, where two observations agree."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any

from tfmon.model.lane_clock import lane_clock
from tfmon.script.input_causes import chain_of
from tfmon.script.looking import leaves_of, line_of, users_frame

Pull = tuple["BatchSource", frozenset[int]]
"""A batch that was read, and the numbers of examples that its parts may have."""
Given = tuple[int, ...]
"""First dimensions of what a function that computes gradients was given, or of both ends of a tape."""
OTHER_ROWS = "what the step is given has not the size of the batch that was read for it"
NOT_SEEN = "what the gradients are computed of is not seen, as where a tape is around a tf.function"
NOTHING_READ = "the step reads no batch, and what the gradients are computed of is not seen to be one"
LOOP_IN_GRAPH = "a call updates several times, as a loop inside of a graph does"
NO_ROWS = "the first dimension of the batches that are read is not seen to be the batch size"
PARTS_DIFFER = "the parts of the batches differ in their first dimension"
NOT_COUNTED = "updates in a loop or branch of a graph, by what does not count them. Tell tfmon: report.step"
BY_HAND = "weights are also updated by hand, which is not counted"
BOTH = "weights are updated by an optimizer, and by hand. Tell tfmon what a step is: report.step"
UNEQUAL = "the optimizers of a step are given different numbers of examples"


def nothing(*_: object) -> None:
    """Do nothing, and return nothing."""


class BatchSource:
    """An iterator that the script pulls batches from."""

    __slots__ = ("anew", "batched", "began_ns", "dataset", "first_ns", "last_step", "over", "pulls", "ref",
                 "steps", "strange", "trained", "wait_ns")  # fmt: skip

    def __init__(self, iterator: object) -> None:
        self.ref = weakref.ref(iterator)
        self.dataset: Callable[[], Any] = nothing
        self.batched = is_batched(getattr(iterator, "_dataset", None))
        self.over = self.trained = False
        self.pulls = self.strange = self.steps = self.began_ns = self.first_ns = self.wait_ns = 0
        self.anew = ""
        """The line that makes it, and one more for each step; else empty."""
        self.last_step = -2

    @property
    def open(self) -> bool:
        """Whether it may still be pulled from."""
        return not self.over and self.ref() is not None


class SeenStep:
    """What was seen of a step. Units: nanoseconds of `lane_clock`."""

    __slots__ = ("alike", "began_ns", "begun", "due", "fed", "given", "in_graph", "loss", "mark", "updated_ns",
                 "updates")  # fmt: skip

    def __init__(self) -> None:
        self.begun = self.in_graph = False
        """Whether the lane knows that it has begun, and whether its batches are read inside of a graph."""
        self.began_ns = self.updated_ns = 0
        self.fed: list[BatchSource] = []
        """What its first update was fed by."""
        self.given: Counter[Given] = Counter()
        self.updates = self.due = 0
        """Updates that were seen, and how many steps are complete with them."""
        self.loss: Any = None
        self.mark: object = None
        """The read that its last update came from."""
        self.alike: object = None
        """What made the update of the step before, if that was one that may be noted."""

    def examples(self, pulled: Counter[Pull]) -> int | str:
        """Return the examples that no graph has counted, or why they are not known; `pulled` is what was read."""
        if self.in_graph:
            return 0
        return LOOP_IN_GRAPH if self.due > 1 else examples_of(pulled, self.given, self.updates)

    def of_one_batch(self, pulled: Counter[Pull]) -> object:
        """Return what made its one update, if it read one batch of the requested size; or None.

        It may also have read nothing, where all that it was given has one size.
        """
        read, given = [*pulled.elements()], [*self.given.elements()]
        if self.in_graph or not self.updates == self.due == len(given) == 1 or len(read) != len(self.fed):
            return None
        sizes = read[0][1] if len(read) == 1 else frozenset() if read else frozenset(given[0])
        return self.mark if len(sizes) == 1 and given[0] and sizes == {given[0][0]} else None


class Past:
    """What steps were given of which it is not known whether they are parts of a round."""

    def __init__(self) -> None:
        self.steps = self.examples = 0
        self.pulled: Counter[Pull] = Counter()
        self.given: Counter[Given] = Counter()

    def add(self, pulled: Counter[Pull], given: Counter[Given], examples: int) -> None:
        """Add a step."""
        self.pulled.update(pulled)
        self.given.update(given)
        self.steps += 1
        self.examples += examples

    @property
    def of_one_step(self) -> int | str:
        """The examples of all of them, if they were one step, or why these are not known."""
        return examples_of(self.pulled, self.given, self.steps)


class Sources:
    """The iterators of a loop. Thread: that of the loop."""

    def __init__(self) -> None:
        """Know none yet."""
        self.pulled: Counter[Pull] = Counter()
        """The batches read since the last step."""
        self.making: dict[BatchSource, int] = {}
        """How long it took since then to make iterators of which each step makes one."""
        self.main: BatchSource | None = None
        """The one whose end is that of an epoch; None while that is not known."""
        self._known: dict[int, BatchSource] = {}
        self._made: weakref.WeakKeyDictionary[Any, dict[Hashable, BatchSource]] = weakref.WeakKeyDictionary()
        """The latest iterator of each dataset, and of those made from it, by where it was made."""

    @property
    def reads(self) -> object:
        """The iterator that the loop reads and that has not ended; None if there is none."""
        return self.main.ref() if self.main is not None and self.main.open else None

    @property
    def feeds(self) -> tuple[tuple[object, int], ...]:
        """The iterators that the step under way has read, each with its examples; 0 for unknown."""
        rows = {source: next(iter(rows)) if len(rows) == 1 else 0 for source, rows in self.pulled}
        return tuple((source.ref(), count) for source, count in rows.items())

    def of(self, iterator: object) -> BatchSource:
        """Return the source of an iterator; at its first pull, forget those that have ended."""
        source = self._known.get(id(iterator))
        if source is not None and source.ref() is iterator:
            return source
        for key in [key for key, one in self._known.items() if not one.open]:
            del self._known[key]
        source = self._known[id(iterator)] = BatchSource(iterator)
        return source

    def earlier(self, dataset: Any, place: Hashable) -> BatchSource | None:  # noqa: ANN401
        """Return the last iterator of a dataset that was made at a place, if it gave one batch.

        Where the script makes the end of its pipeline anew, as by `take(1)`, that of the last one is freed.
        """
        for depth, one in enumerate(chain_of(dataset)):
            if (source := self._made.get(one, {}).get((place, depth))) is not None:
                alike = source.pulls - source.over == 1 and (not depth or source.dataset() is None)
                return source if alike else None
        return None

    def made(self, iterator: object, dataset: Any, place: Hashable, began_ns: int) -> None:  # noqa: ANN401
        """Record that an iterator was made at a place since `began_ns`, perhaps as in the step before."""
        earlier, source = self.earlier(dataset, place), self.of(iterator)
        source.dataset = weakref.ref(dataset)
        if earlier is not None:
            source.trained, source.last_step = earlier.trained, earlier.last_step
            self.making[source] = lane_clock.now_ns() - began_ns
            source.anew = earlier.anew or line_of(users_frame())
        for depth, one in enumerate(chain_of(dataset)):
            self._made.setdefault(one, {})[place, depth] = source

    def received(self, source: BatchSource, rows: frozenset[int]) -> None:
        """Record that a batch of perhaps `rows` examples was received."""
        if all(one is not source for one, _ in self.pulled):
            source.wait_ns = self.making.pop(source, 0)
            source.first_ns = source.began_ns - source.wait_ns
        self.pulled[source, rows] += 1
        source.wait_ns += lane_clock.now_ns() - source.began_ns

    def feed(self, step: int) -> list[BatchSource]:
        """Return those that the first update of a step is fed by; forget what was read for a look before it.

        Where one of them is known to be trained from, others are once they are read for two steps in a row; as are
        those that each step makes anew and frees.
        """
        for source, rows in list(self.pulled):
            if not (source.open or source.trained or source.last_step == step - 1):
                source.last_step = step
                del self.pulled[source, rows]
        sources = list(dict.fromkeys(source for source, _ in self.pulled))
        known = any(source.trained for source in sources) or (step > 0 and self.main is None)
        fed = [one for one in sources if one.trained or not known or one.last_step == step - 1]
        for source in sources:
            source.last_step = step
        if not fed:
            self.pulled.clear()  # a loop that reads nothing has validated
        elif self.main is None or not self.main.open:
            self.main = fed[0]
        return fed


def is_batched(dataset: Any) -> bool | None:  # noqa: ANN401
    """Return whether the elements of a dataset may be batches along their first dimension.

    False if nothing has batched the parts of a tensor. None if the first dimension is not the batch size: the
    batches were transposed.
    """
    last = dataset
    while (inner := getattr(dataset, "_input_dataset", None)) is not None:
        if "batch" in (kind := type(dataset).__name__).lower():
            if "Unbatch" in kind:
                return False
            size = getattr(dataset, "_batch_size", getattr(dataset, "_batch_sizes", None))
            sizes: set[int | None] = set() if size is None else {None, *size.numpy().ravel().tolist()}
            return True if not sizes or first_dimensions(last.element_spec) <= sizes else None
        dataset = inner
    return type(dataset).__name__ not in ("_TensorSliceDataset", "_RangeDataset")


def first_dimensions(batch: Any) -> set[int | None]:  # noqa: ANN401
    """Return the first dimensions of the parts of a batch, or of its types, without waiting; None if unknown."""
    shapes: list[Any] = [getattr(part, "shape", None) for part in leaves_of(batch)]
    return {shape[0] for shape in shapes if getattr(shape, "rank", None)}


def examples_of(pulled: Counter[Pull], given: Counter[Given], updates: int) -> int | str:
    """Return the examples of a step, or why they are not known."""
    read = frozenset[int]().union(*(rows for _, rows in pulled))
    total, each = 0, set[int]()
    for dims, calls in given.items():
        if not dims and updates > 1 and len(given) > 1:
            continue  # one optimizer of a round is given the batch, another makes its own
        result = {*dims, *(sum(dims) // parts for parts in _parts(dims))} & read if pulled else set(dims)
        if len(result) != 1:
            if not dims:
                return NOT_SEEN if pulled else NOTHING_READ
            if pulled and not read:
                return NO_ROWS
            return OTHER_ROWS if pulled else "the step is given parts of different size"
        (rows,) = result
        total += rows * calls
        each.add(rows)
    most = sum(max(rows, default=0) * times for (_, rows), times in pulled.items())
    if updates == 1 and 0 < most < total:
        return OTHER_ROWS
    return total if updates == 1 else rows if len(each) == 1 else UNEQUAL


def _parts(dims: tuple[int, ...]) -> list[int]:
    """Return into how many parts the arguments of a function may be, if each is split over several replicas."""
    return [parts for parts in range(1, len(dims) // 2 + 1) if len(dims) % parts == 0 and not sum(dims) % parts]

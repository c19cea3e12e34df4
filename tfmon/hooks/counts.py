"""Counts examples. Batches and the arguments of gradients must agree."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tfmon.hooks.inspection import leaves_of

GradientRows = tuple[int, ...]
"""First dimensions of a gradient function's arguments, or of a tape's first and last operation."""
OTHER_ROWS = "the step's input has a different size from the batch that was read for it"
NOT_SEEN = "the input of the gradients is not seen, for example with a tape around a tf.function"
NOTHING_READ = "the step reads no batch, and the input of the gradients is not known to be one"
LOOP_IN_GRAPH = "a call updates several times, as a loop inside of a graph does"
NO_ROWS = "the first dimension of the batches is not known to be the batch size"
PARTS_DIFFER = "the parts of the batches differ in their first dimension"
NOT_COUNTED = "updates in a loop or branch of a graph, by code that does not count them. Tell tfmon: report.step"
BY_HAND = "weights are also updated by hand, which is not counted"
BOTH = "weights are updated by an optimizer, and by hand. Tell tfmon what a step is: report.step"
UNEQUAL = "the optimizers of a step are given different numbers of examples"


def is_batched(dataset: Any) -> bool | None:
    """Return whether elements may be batches. None if their first dimension is not the batch size."""
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


def first_dimensions(batch: Any) -> set[int | None]:
    """Return the first dimensions of a batch's parts. None if unknown."""
    shapes: list[Any] = [getattr(part, "shape", None) for part in leaves_of(batch)]
    return {shape[0] for shape in shapes if getattr(shape, "rank", None)}


def examples_of(
    pulled: Counter[tuple[Any, frozenset[int]]], gradient_rows: Counter[GradientRows], updates: int
) -> int | str:
    """Return the number of examples, or why it is unknown."""
    read = frozenset[int]().union(*(rows for _, rows in pulled))
    total, each = 0, set[int]()
    for dims, calls in gradient_rows.items():
        if not dims and updates > 1 and len(gradient_rows) > 1:
            continue
        result = {*dims, *(sum(dims) // parts for parts in _parts(dims))} & read if pulled else set(dims)
        if len(result) != 1:
            if not dims:
                return NOT_SEEN if pulled else NOTHING_READ
            if pulled and not read:
                return NO_ROWS
            return OTHER_ROWS if pulled else "the inputs of the step differ in size"
        (rows,) = result
        total += rows * calls
        each.add(rows)
    most = sum(max(rows, default=0) * times for (_, rows), times in pulled.items())
    if updates == 1 and 0 < most < total:
        return OTHER_ROWS
    return total if updates == 1 else rows if len(each) == 1 else UNEQUAL


def _parts(dims: tuple[int, ...]) -> list[int]:
    return [parts for parts in range(1, len(dims) // 2 + 1) if len(dims) % parts == 0 and not sum(dims) % parts]

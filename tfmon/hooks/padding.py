"""Finds batches that are mostly padding."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from tfmon.hooks.cause_reports import Observation
from tfmon.hooks.dataset_chain import Transformation
from tfmon.hooks.inspection import leaves_of, line_now, logs_operations
from tfmon.hooks.patches import Around, hooks
from tfmon.hooks.script_lines import namespaces

LEAST_PADDING = 0.4
LEAST_WIDTH, SAMPLED_ROWS, SAMPLED_VALUES = 16, 64, 100_000
_PADDING = "_tfmon_padding"
_pads: set[str] = set()


def patch(keras: Any) -> None:
    """Record the lines that pad sequences."""
    for each in namespaces(keras):
        for module in (each.utils, getattr(each.preprocessing, "sequence", None)):
            if module is not None:
                hooks.replace(module, "pad_sequences", hooks.around(_note))


def _note(*_args: object, **_more: object) -> Around:
    yield None
    _pads.add(line_now())


def padding_of(nodes: Iterable[Transformation]) -> Iterator[Observation]:
    """Yield the padding in a pipeline's batches."""
    for each in nodes:
        stage = each.stage
        if each.kind == "_PaddedBatchDataset" and stage is not None and stage.bytes:
            yield from _observed(1.0 - stage.consumed / stage.bytes, each.line)
        elif each.kind == "_TensorSliceDataset":
            if not hasattr(each.dataset, _PADDING):
                setattr(each.dataset, _PADDING, max(map(_padding_in, each.dataset._tensors), default=0.0))
            yield from _observed(getattr(each.dataset, _PADDING), _line() or each.line)


def padding_in_arrays(arrays: Any, line: str) -> Iterator[Observation]:
    """Yield the padding in arrays."""
    yield from _observed(max(map(_padding_in, leaves_of(arrays)), default=0.0), _line() or line)


def _line() -> str:
    return next(iter(_pads)) if len(_pads) == 1 else ""


def _observed(share: float, line: str) -> Iterator[Observation]:
    if share >= LEAST_PADDING:
        what = f"{100 * share:.0f} % of it"
        figures = {"of_step": share, "wasted": share, "gain": 1.0}
        yield Observation("step_padding", line, what=what, figures=figures)


def _padding_in(array: Any) -> float:
    numpy: Any = sys.modules.get("numpy")
    shape = tuple(getattr(array, "shape", ()))
    if numpy is None or len(shape) != 2 or not shape[0] or (shape[1] or 0) < LEAST_WIDTH:
        return 0.0
    read = isinstance(array, numpy.ndarray) or (hasattr(array, "numpy") and not logs_operations())
    if not read or "int" not in str(array.dtype):
        return 0.0
    sampled = max(2, min(SAMPLED_ROWS, SAMPLED_VALUES // int(shape[1])))
    rows = numpy.asarray(array[:: -(-int(shape[0]) // sampled)])
    if rows.max() - rows.min() < 2:
        return 0.0
    return max(map(_leading, (rows.tolist(), rows[:, ::-1].tolist())))


def _leading(rows: list[list[int]]) -> float:
    value = Counter(row[0] for row in rows).most_common(1)[0][0]
    runs = (sum(1 for _ in itertools.takewhile(value.__eq__, row)) for row in rows)
    return sum(runs) / (len(rows) * len(rows[0]))

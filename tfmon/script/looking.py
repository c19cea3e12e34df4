"""Reads what a hook needs from batches, outputs, variables and optimizers, without waiting for the device."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator
from types import FrameType
from typing import Any

LIBRARIES = frozenset(("keras", "tensorflow", "tf_keras", "tfmon"))
"""Frames of these packages are not the script's."""


def logs_operations() -> bool:
    """Return whether TensorFlow writes a line for each operation that it places, tfmon's included."""
    context = sys.modules.get("tensorflow.python.eager.context")
    return bool(getattr(getattr(context, "_context", None), "_log_device_placement", None))


def place(site: Hashable) -> tuple[Hashable, int, int]:
    """Return an update's site with the script's instruction that makes it."""
    frame = sys._getframe(2)
    while frame.f_back is not None and _package(frame) in LIBRARIES:
        frame = frame.f_back
    return site, id(frame.f_code), frame.f_lasti


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def rows_of(batch: Any) -> int:  # noqa: ANN401
    """Return the examples of a batch: the first dimension of its first tensor, over all replicas; 0 if unknown."""
    while not hasattr(batch, "shape"):
        if isinstance(batch, tuple | list) and batch:
            batch = batch[0]
        elif isinstance(batch, dict) and batch:
            batch = next(iter(batch.values()))
        else:
            parts = getattr(batch, "values", None)
            return sum(rows_of(part) for part in parts) if isinstance(parts, tuple) else 0
    parts = getattr(batch, "values", None)
    if isinstance(parts, tuple) and not hasattr(batch, "dense_shape"):
        return sum(rows_of(part) for part in parts)
    quick = getattr(batch, "_shape_tuple", None)
    shape = quick() if quick is not None else batch.shape
    if not shape:
        return 1 if shape is not None and len(shape) == 0 else 0
    if shape[0] is not None:
        return int(shape[0])
    return int(batch.nrows()) if hasattr(batch, "nrows") else int(batch.dense_shape[0])


def rows_in(tensors: Any) -> int:  # noqa: ANN401
    """Return the first dimension of a function's first argument that has one; 0 if none has."""
    for tensor in tensors:
        quick = getattr(tensor, "_shape_tuple", None)
        shape = quick() if quick is not None else None
        if shape:
            return int(shape[0] or 0)
    return 0


def first_of(target: Any) -> Any:  # noqa: ANN401
    """Return what was differentiated, or the first of several."""
    while isinstance(target, tuple | list) and target:
        target = target[0]
    return target


def variables_in(sources: Any) -> Iterator[Any]:  # noqa: ANN401
    """Yield TensorFlow's variables in a nested structure; Keras wraps its own around them."""
    if isinstance(sources, dict):
        sources = sources.values()
    elif not isinstance(sources, tuple | list):
        sources = (sources,)
    for one in sources:
        if isinstance(one, tuple | list | dict):
            yield from variables_in(one)
        else:
            inner = getattr(one, "_value", None)
            variable = inner if hasattr(inner, "assign_sub") else one
            if hasattr(variable, "assign_sub"):
                yield variable


def iterations_of(optimizer: Any) -> Callable[[], int] | None:  # noqa: ANN401
    """Return what counts an optimizer's updates; None if it counts none."""
    counter = getattr(optimizer, "iterations", None)
    if counter is None or not hasattr(counter, "numpy"):
        return None
    return lambda: int(counter.numpy())


def loss_path(outputs: Any) -> tuple[Any, ...] | None:  # noqa: ANN401
    """Return where in a function's outputs the loss is: under the key `loss`, or the first single real number."""
    if isinstance(outputs, dict) and "loss" in outputs:
        return ("loss",)
    pairs: Any = ()
    if isinstance(outputs, dict):
        pairs = outputs.items()
    elif isinstance(outputs, tuple | list):
        pairs = enumerate(outputs)
    else:
        parts = getattr(outputs, "values", None)
        one = parts[0] if isinstance(parts, tuple) and parts else outputs
        floating = getattr(getattr(one, "dtype", None), "is_floating", False)
        return () if floating and getattr(getattr(one, "shape", None), "rank", None) == 0 else None
    for key, inner in pairs:
        path = loss_path(inner)
        if path is not None:
            return (key, *path)
    return None

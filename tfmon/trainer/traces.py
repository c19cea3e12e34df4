"""Counts the traces of functions, and finds the changed argument."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from tfmon.system.lane_clock import lane_clock

MOST_CAUSE_CHARACTERS = 120
VALUE, SHAPE, DTYPE, OBJECT = "retrace_value", "retrace_shape", "retrace_dtype", "retrace_object"
OF_DATASET = "Dataset_"
"""Prefix of the names of tf.data functions' graphs."""


class TraceWatch:
    """Counts the graphs that TensorFlow builds for tf.functions in one thread.

    Graphs of loops, branches and datasets are not counted.

    Thread: the training thread.
    """

    def __init__(self) -> None:
        import tensorflow as tf

        self.count = 0
        self.latest_ns = 0
        """Beginning of the last trace, or 0."""
        self._graphs: list[Any] = []
        self._thread = threading.get_ident()
        graph_type: Any = tf.__internal__.FuncGraph
        build = graph_type.__init__

        def counting(graph: Any, name: str, *args: Any, **kwargs: Any) -> None:
            is_counted = threading.get_ident() == self._thread and not str(name).startswith(OF_DATASET)
            if is_counted and not tf.inside_function():
                self.count += 1
                self.latest_ns = lane_clock.now_ns()
                self._graphs = [*self._graphs[-1:], graph]
            build(graph, name, *args, **kwargs)

        graph_type.__init__ = counting
        self._graph_type, self._build, self._counting = graph_type, build, counting

    @contextlib.contextmanager
    def ignored(self) -> Iterator[None]:
        """Count no trace in this context."""
        before = self.count, self.latest_ns, self._graphs
        try:
            yield
        finally:
            self.count, self.latest_ns, self._graphs = before

    def close(self) -> None:
        """Stop counting."""
        if self._graph_type.__init__ is self._counting:
            self._graph_type.__init__ = self._build
        self._thread, self._graphs = 0, []

    def cause(self) -> str:
        """Return the last traced function and its changed argument."""
        if not self._graphs:
            return ""
        *before, last = self._graphs
        name = str(getattr(last, "name", "")) or "a tf.function"
        if not before or getattr(before[0], "name", "") != getattr(last, "name", ""):
            return name
        pairs = zip(_arguments(before[0]), _arguments(last), strict=False)
        for number, (old, new) in enumerate(pairs, start=1):
            changed = (
                describe(getattr(new, "name", None) or f"argument {number}", old, new)[1] if old != new else ""
            )
            if changed:
                return f"{name}: {changed}"[:MOST_CAUSE_CHARACTERS]
        return name


def _arguments(graph: Any) -> list[Any]:
    import tensorflow as tf

    signature = getattr(graph, "structured_input_signature", None)
    return list(tf.nest.flatten(signature)) if signature is not None else []


def describe(path: str, old: Any, new: Any) -> tuple[str, str, bool]:
    """Return the cause of a trace, the argument's change, and whether only a batch is smaller."""
    shapes = [shape_of(argument) for argument in (old, new)]
    types = [getattr(getattr(argument, "dtype", None), "name", None) for argument in (old, new)]
    if None not in shapes and shapes[0] != shapes[1]:
        same_rank = len(shapes[0] or ()) == len(shapes[1] or ())
        if same_rank and all(
            size in (was, None) for was, size in zip(shapes[0] or (), shapes[1] or (), strict=True)
        ):
            return "", "", False
        (first, *rest), (now_first, *now_rest) = (shape or [None] for shape in shapes)
        smaller = rest == now_rest and isinstance(first, int) and isinstance(now_first, int) and now_first < first
        return SHAPE, f"`{path}`: {written(shapes[0])} → {written(shapes[1])}", smaller
    if None not in types and types[0] != types[1]:
        return DTYPE, f"`{path}`: {types[0]} → {types[1]}", False
    values = [getattr(argument, "value", argument) for argument in (old, new)]
    if isinstance(values[1], bool) or values[1] is None:
        return "", "", False
    if isinstance(values[1], int | float | str):
        was = f"{values[0]!r}" if isinstance(values[0], int | float | str) else "a tensor"
        return VALUE, f"`{path}`: {was} → {values[1]!r}", False
    if type(new).__name__ == "Weakref":
        return OBJECT, f"`{path}`: another object at each call", False
    return OBJECT, f"`{path}`: another structure or object", False


def shape_of(kind: Any) -> list[Any] | None:
    """Return a shape's sizes, if it has a rank."""
    shape = getattr(kind, "shape", None)
    try:
        return None if shape is None else list(shape)
    except (TypeError, ValueError):
        return None


def written(shape: Iterable[Any] | None) -> str:
    """Return a shape's text, such as "(32, 28)"."""
    sizes = [str(size) for size in shape or ()]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"

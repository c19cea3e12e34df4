"""Notices when a tf.function is traced in the training loop, and what made it trace anew."""

from __future__ import annotations

import threading
from typing import Any

MOST_WORDS = 120
"""Characters of a description."""


class TraceWatch:
    """Counts the graphs that TensorFlow builds for tf.functions in one thread.

    Tracing makes a `FuncGraph`; those of loops and branches inside of it, and those that the workshop or a
    pipeline builds in another thread, are not counted. A function's own `experimental_get_tracing_count` would
    do for the lane's step alone, but not for the functions that a step of the user's calls.

    Thread: made and read in the thread that trains.
    """

    def __init__(self) -> None:
        import tensorflow as tf

        self.count = 0
        """Traces since the start."""
        self._graphs: list[Any] = []
        self._thread = threading.get_ident()
        graph_type: Any = tf.__internal__.FuncGraph
        build = graph_type.__init__

        def note(graph: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
            if threading.get_ident() == self._thread and not tf.inside_function():
                self.count += 1
                self._graphs = [*self._graphs[-1:], graph]
            build(graph, *args, **kwargs)

        graph_type.__init__ = note
        self._graph_type, self._build = graph_type, build

    def close(self) -> None:
        """Stop counting."""
        self._graph_type.__init__ = self._build

    def cause(self) -> str:
        """Say which function was traced last, and which argument differed from the time before, if one did."""
        if not self._graphs:
            return ""
        *before, last = self._graphs
        name = str(getattr(last, "name", "")) or "a tf.function"
        if not before or getattr(before[0], "name", "") != getattr(last, "name", ""):
            return name
        difference = _difference(_arguments(before[0]), _arguments(last))
        return f"{name}: {difference}"[:MOST_WORDS] if difference else name


def _arguments(graph: Any) -> list[Any]:  # noqa: ANN401
    import tensorflow as tf

    signature = getattr(graph, "structured_input_signature", None)
    return list(tf.nest.flatten(signature)) if signature is not None else []


def _difference(before: list[Any], after: list[Any]) -> str:
    """Say which argument changed from one trace to the next."""
    for place, (old, new) in enumerate(zip(before, after, strict=False), start=1):
        if old == new:
            continue
        name = getattr(new, "name", None)
        words = f"argument {name}" if name else f"argument {place}"
        shapes = getattr(old, "shape", None), getattr(new, "shape", None)
        if None not in shapes and shapes[0] != shapes[1]:
            return f"{words} had the shape {shapes[0]}, then {shapes[1]}"
        kinds: list[Any] = [getattr(old, "dtype", None), getattr(new, "dtype", None)]
        if None not in kinds and kinds[0] != kinds[1]:
            return f"{words} was {kinds[0].name}, then {kinds[1].name}"
        if isinstance(new, bool | int | float | str):
            return f"{words} was the Python value {old!r}, then {new!r}"
        return f"{words} changed"
    return ""

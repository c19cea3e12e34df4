"""What is known of a graph that trains, or computes gradients; it lies on the graph.

Python's collector does not look into a graph: with a reference to an optimizer or a variable, which refer to the
functions of their graphs, neither would ever end. So references are weak.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tfmon.script.looking import loss_path, rows_in
from tfmon.script.sources import nothing

MARK = "_tfmon_mark"
UNTRAINED = object()
"""The mark of a function that neither trains nor computes gradients."""


class Variables(dict[int, Callable[[], Any]]):
    """Weak references to variables; a variable cannot be in a set."""

    def add(self, variables: Iterable[Any]) -> None:
        """Add variables."""
        self.update((id(one), weakref.ref(one)) for one in variables)

    def has(self, variable: object) -> bool:
        """Return whether a variable is one of these."""
        ref = self.get(id(variable))
        return ref is not None and ref() is variable


class Mark:
    """What was seen while a graph was traced."""

    __slots__ = ("loops", "loss_path", "optimizer", "pulls", "sources", "trains")

    def __init__(self) -> None:
        self.trains = self.loops = self.pulls = False
        self.optimizer: Callable[[], Any] = nothing
        """Returns the optimizer that was applied, as long as the script has it."""
        self.sources = Variables()
        self.loss_path: tuple[Any, ...] | None = None

    def loss_in(self, result: Any) -> Any:  # noqa: ANN401
        """Return the loss in what the function returned; None if it returned none."""
        if self.loss_path is None:
            return None
        for key in self.loss_path:
            result = result[key]
        return result

    def rows_in(self, tensors: Any) -> int:  # noqa: ANN401
        """Return the examples of a call as far as its arguments tell; -1 if the graph counts them itself."""
        if self.pulls:
            return -1
        return 0 if self.loops else rows_in(tensors)


def mark_of(function: Any) -> Any:  # noqa: ANN401
    """Return the mark of a traced function's graph, once and for all: it moves from the graph to the function."""
    graph = function._func_graph
    mark = getattr(graph, MARK, None)
    if mark is None or not (mark.trains or mark.sources or mark.pulls):
        mark = UNTRAINED
    else:
        mark.loss_path = loss_path(getattr(graph, "structured_outputs", None))
    setattr(function, MARK, mark)
    return mark


def mark_training(graph: Any, optimizer: Any, *, loops: bool = False) -> None:  # noqa: ANN401
    """Mark the graph that is built now, and those around it, as training."""
    for mark, inside in marks_around(graph):
        mark.trains = True
        mark.loops |= loops or inside
        if optimizer is not None and mark.optimizer() is None:
            mark.optimizer = weakref.ref(optimizer)


def marks_around(graph: Any) -> Iterator[tuple[Mark, bool]]:  # noqa: ANN401
    """Yield the marks of a graph that is built now and of those around it, and whether a loop lies between."""
    inside = False
    while graph is not None and hasattr(graph, "outer_graph"):
        mark = getattr(graph, MARK, None)
        if mark is None:
            mark = Mark()
            setattr(graph, MARK, mark)
        yield mark, inside
        inside |= type(graph).__name__ == "WhileBodyFuncGraph" or graph.name.startswith("Dataset_")
        graph = graph.outer_graph

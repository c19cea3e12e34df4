"""Facts about a graph that trains, stored on the graph.

Python's collector does not search graphs, so references to optimizers and variables are weak.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tfmon.hooks.inspection import leaves_of, path_to
from tfmon.hooks.optimizers import Updater

MARK = "_tfmon_mark"
UNTRAINED = object()
_ASSIGNS = ("AssignVariableOp", "AssignAddVariableOp")
_SUBTRACTS = ("AssignSubVariableOp", "ResourceApply", "ResourceSparseApply")
LAYERS = frozenset(("Conv1D", "Conv2D", "Conv3D", "DepthwiseConv2dNative", "MatMul", "Reshape"))
_MORE_LAYERS = ("BatchMatMulV2", "Einsum", "FusedBatchNormV3")
_SUMS, _SCALES = ("AddN", "AddV2", "Cast", "Identity", "RealDiv"), ("Cast", "Identity", "Mul", "RealDiv")


class Variables(dict[int, Callable[[], Any]]):
    """Weak references to variables by id, because variables cannot be hashed."""

    def __init__(self, sources: Any = ()) -> None:
        flat = isinstance(sources, list | tuple) and all(hasattr(source, "assign_sub") for source in sources)
        self._ids = [*map(id, sources)] if flat and sources else None
        self._refs = [weakref.ref(source, self._forget_ids) for source in sources] if flat else []
        for leaf in leaves_of(sources):
            inner = getattr(leaf, "_value", None)
            variable = inner if hasattr(inner, "assign_sub") else leaf
            if hasattr(variable, "assign_sub"):
                self[id(variable)] = weakref.ref(variable)

    def _forget_ids(self, _ref: object) -> None:
        self._ids = None  # a variable's id may be reused

    def are(self, sources: object) -> bool:
        """Return whether a list contains the same variables."""
        return isinstance(sources, (list, tuple)) and [*map(id, sources)] == self._ids

    def has(self, variable: object) -> bool:
        """Return whether a variable is contained."""
        ref = self.get(id(variable))
        return ref is not None and ref() is variable


class Mark:
    """Observations during the trace of a graph."""

    def __init__(self) -> None:
        self.pulls = False
        self.varies = False
        """Whether a call may update several times."""
        self.by_hand = ""
        """Name of the function that updates without an optimizer."""
        self.optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self.batched: bool | None = None
        """Whether the first layer takes a batch."""
        self.sources = Variables()
        self.targets: set[str] = set()
        self.loss_path: tuple[Any, ...] | None = None
        self.updater: Updater | None = None
        self.hooks: Callable[[], object] = lambda: None
        self.per_call: int | None = None
        """Updates per call, according to the optimizers' counts."""
        self.counted: int | None = None

    @property
    def trains(self) -> bool:
        """Whether a call updates weights."""
        return bool(self.optimizers or self.by_hand)

    def loss_in(self, result: Any) -> Any:
        """Return the loss in a result."""
        if self.loss_path is None:
            return None
        for key in self.loss_path:
            result = result[key]
        return result

    def is_loss(self, graph: Any, output: Any) -> bool:
        """Return whether an output is the differentiated loss, also of a replica or before scaling."""
        parts = getattr(output, "values", None)
        output = parts[0] if isinstance(parts, tuple) and parts else output
        floating = getattr(getattr(output, "dtype", None), "is_floating", False)
        if not (floating and self.targets and hasattr(output, "op") and output.shape.rank == 0):
            return False
        if self.targets & _behind(output, _SUMS):
            return True
        identities = _behind(output, ("Identity",))
        targets = (graph.get_tensor_by_name(name) for name in self.targets)
        return any(identities & _behind(target, _SCALES) for target in targets)


def _behind(tensor: Any, kinds: tuple[str, ...]) -> set[str]:
    todo, names = [tensor], set()
    while todo:
        current = todo.pop()
        if current.name not in names:
            names.add(current.name)
            todo += current.op.inputs if current.op.type in kinds else ()
    return names


def mark_of(function: Any) -> Any:
    """Complete a graph's mark, store it on the function, and return it."""
    graph = function._func_graph
    mark = getattr(graph, MARK, None) or Mark()
    if not mark.trains and _writes_weights(graph, mark.sources):
        mark.by_hand = graph.name
    if mark.trains or mark.sources or mark.pulls:
        outputs = getattr(graph, "structured_outputs", None)
        mark.loss_path = path_to(outputs, lambda output: mark.is_loss(graph, output))
        mark.batched = _is_batched(graph)
    else:
        mark = UNTRAINED
    setattr(function, MARK, mark)
    return mark


def _is_batched(graph: Any) -> bool | None:
    argument_rows = {
        input_.shape[0] for input_ in graph.inputs[: len(graph.inputs) - len(graph.captures)] if input_.shape.rank
    }
    layer, loops = _first_layer(graph)
    if layer is None:
        weights = {size for variable in graph.trainable_variables for size in variable.shape}
        return None if loops or argument_rows & weights else True
    rows = layer.shape[0]
    return True if rows in argument_rows else False if rows == 1 else None


def _first_layer(graph: Any) -> tuple[Any, bool]:
    loops = False
    for op in graph.get_operations():
        if op.type in LAYERS or op.type in _MORE_LAYERS:
            first = op.inputs[0]
            if first.op.type != "ReadVariableOp" and (first.shape.rank or 0) > (op.type == "Reshape"):
                return first, loops
        elif op.type.endswith("PartitionedCall") or op.type in ("If", "StatelessIf"):
            called = graph._get_function(op.get_attr("then_branch" if op.type.endswith("If") else "f").name)
            layer, inner = _first_layer(called.graph)
            loops |= inner
            if layer is not None:
                return layer, loops
        loops |= op.type in ("While", "StatelessWhile")
    return None, loops


def _writes_weights(graph: Any, sources: Variables) -> bool:
    weights = {id(variable.handle): variable for variable in graph.trainable_variables}
    if not weights:
        return False
    names = {inner.name: weights.get(id(outer)) for outer, inner in graph.captures}
    for op in graph.get_operations():
        variable = names.get(op.inputs[0].name) if op.inputs else None
        if variable is not None and (
            op.type.startswith(_SUBTRACTS) or (op.type in _ASSIGNS and sources.has(variable))
        ):
            return True
    return False


def mark_training(
    graph: Any,
    optimizers: Iterable[Any],
    by_hand: str = "",
    *,
    varies: bool = False,
) -> None:
    """Mark the surrounding graphs as training."""
    for mark in marks_around(graph):
        mark.optimizers.update(optimizer for optimizer in optimizers if optimizer is not None)
        mark.by_hand = mark.by_hand or by_hand
        mark.varies |= varies
        # Loops, branches and tf.data may run a graph any number of times.
        varies |= type(graph).__name__ != "FuncGraph" or graph.name.startswith(("Dataset_", "reduce_"))
        graph = graph.outer_graph


def marks_around(graph: Any) -> Iterator[Mark]:
    """Yield the marks of a graph and its surrounding graphs."""
    while graph is not None and hasattr(graph, "outer_graph"):
        mark = getattr(graph, MARK, None)
        if mark is None:
            mark = Mark()
            setattr(graph, MARK, mark)
        yield mark
        graph = graph.outer_graph

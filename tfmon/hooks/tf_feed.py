"""Counts examples and input waits of functions whose graphs take the batches.

Each trace adds time stamps around `get_next`. The graph adds waits and sizes to variables, which are read once a
window.

A captured variable costs 25 µs per call; a variable made inside of the graph costs nothing. `tf.shape(batch)[0]`
wakes another thread, which takes 20 µs; `tf.size` does not. An Identity makes the step wait for the additions.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from tfmon.hooks.counts import NO_ROWS, PARTS_DIFFER, first_dimensions
from tfmon.hooks.inspection import logs_operations, rows_of
from tfmon.hooks.patches import hooks
from tfmon.system.lane_clock import lane_clock

SCOPE = "tfmon/"
WAITED = "tfmon_waited"
BATCHES, UNEQUAL = "tfmon_batches", "tfmon_unequal"
"""Batches of calls with several steps, and a sum that is 0 if parts have equal lengths."""
COUNTED = "_tfmon_counted"
"""Attribute of a counted graph: reasons for unknown values."""
BEFORE = "the step was traced before tfmon watched: compile the model, or define the function, where it watches"
LOGGED = "TensorFlow logs where operations run"
ELEMENTS = "tfmon_elements_"
"""Element counts, by elements per example."""


class TensorFlowFeed:
    """Counts of this process. Thread: the training thread."""

    def __init__(self) -> None:
        import tensorflow as tf

        self._tf = tf
        self.unknown: dict[str, str] = {}
        self.follows = 0
        self.avoided = ""
        """Why the traced graph must not be changed."""
        self.busy = False
        self._broken = False
        self._waited_ns = self._examples = self._batches = self._unequal = 0
        self._seen_ns = self.suspended_ns = 0
        self._sums: dict[str, Any] = {}

    def recall(self, functions: Any) -> None:
        """Report these functions' unknown values again."""
        for graph in (function.graph for function in functions):
            if hasattr(graph, COUNTED):
                self.unknown.update(getattr(graph, COUNTED))
            elif _reads(graph.as_graph_def()):
                self.unknown.update(examples=BEFORE, input=BEFORE)

    def cannot_know(self, **reasons: str) -> None:
        """Report unknown values, and store them on the graph."""
        self.unknown.update(reasons)
        graph: Any = self._tf.compat.v1.get_default_graph() if self._tf.inside_function() else None
        while hasattr(graph, "outer_graph"):
            setattr(graph, COUNTED, {**getattr(graph, COUNTED, {}), **reasons})
            graph = graph.outer_graph

    def waits_ns(self) -> int:
        """Return the total wait for batches."""
        if WAITED not in self._sums:
            return self._waited_ns
        return self._counted_ns(self._read(WAITED)) + self._waited_ns

    def _counted_ns(self, seconds: float) -> int:
        """Return the wait in graphs, and subtract suspensions, which the clock of a graph includes."""
        waited_ns = int(seconds * 1e9)
        if waited_ns - self._seen_ns >= self.suspended_ns:
            self._waited_ns -= self.suspended_ns
        self._seen_ns, self.suspended_ns = waited_ns, 0
        return waited_ns

    def totals(self) -> tuple[int, int] | None:
        """Return the total wait in ns and the examples, if known."""
        if self._broken:
            return None
        if (unequal := self._read(UNEQUAL)) != self._unequal:
            self._unequal, self.unknown["examples"] = unequal, PARTS_DIFFER
        sizes = {name: name.removeprefix(ELEMENTS) for name in self._sums if name.startswith(ELEMENTS)}
        examples = sum(int(self._read(name)) // int(each) for name, each in sizes.items())
        return self.waits_ns(), self._examples + examples

    def batches(self) -> int:
        """Return the batches of functions with several steps."""
        return self._batches + int(self._read(BATCHES))

    def _read(self, name: str) -> Any:
        tf = self._tf
        if name not in self._sums:
            return 0
        with tf.device("CPU:0"):
            kind = tf.float64 if name == WAITED else tf.int64
            return tf.raw_ops.ReadVariableOp(resource=self._sums[name], dtype=kind).numpy()

    def counted(self, original: Any, iterator: Any, args: Any, kwargs: Any, *, optional: bool) -> Any:
        """Return `original(iterator, …)`, counted. Nested iterators are not counted."""
        tf, began = self._tf, None
        self.busy = True
        try:
            began_ns = lane_clock.now_ns()
            with hooks:
                if tf.inside_function():
                    began = self._begin()
            with tf.control_dependencies(began or []):
                pulled = original(iterator, *args, **kwargs)
            counted = None
            with hooks:
                if began is not None:
                    counted = self._add(began, pulled, optional=optional)
                elif optional and logs_operations():
                    self.cannot_know(examples=LOGGED, input=LOGGED)
                elif not tf.inside_function():
                    self._waited_ns += lane_clock.now_ns() - began_ns
                    if not optional or pulled.has_value():
                        rows = rows_of(pulled.get_value() if optional else pulled)
                        self._batches += 1
                        self._examples += next(iter(rows), 0)
                        if len(rows) != 1:
                            self.cannot_know(examples=PARTS_DIFFER if rows else NO_ROWS)
                    counted = pulled
            self._broken |= counted is None
            return pulled if counted is None else counted
        finally:
            self.busy = False

    def _begin(self) -> list[Any] | None:
        tf, reason = self._tf, self.avoided or _cannot_run()
        self.cannot_know()
        if reason:
            self.cannot_know(examples=reason, input=reason)
            return None
        from tensorflow.python.framework import config

        if config.is_op_determinism_enabled():
            self.cannot_know(input="determinism is on")
            return []
        with tf.name_scope(SCOPE), tf.device("CPU:0"):
            return [tf.timestamp()]

    def _add(self, began: list[Any], pulled: Any, *, optional: bool) -> Any:
        tf = self._tf
        first = None if optional else next(iter(_parts(tf, pulled)), None)
        with tf.name_scope(SCOPE):
            arrived = pulled.has_value() if optional else tf.nest.flatten(pulled, expand_composites=True)[0]
            added = []
            if began:
                with tf.device("CPU:0"), tf.control_dependencies([arrived]):
                    added = [self._add_to(WAITED, tf.timestamp() - began[0])]
            if optional:

                def counts() -> Any:
                    elements, each, unequal = self._counts(pulled.get_value())
                    return tf.stack([elements // each, unequal, 1])

                # Both branches must return examples.
                numbers = tf.unstack(tf.cond(arrived, counts, lambda: tf.zeros([3], tf.int64)))
                added += map(self._add_to, (f"{ELEMENTS}1", UNEQUAL, BATCHES), numbers)
            elif first is None:
                self.cannot_know(examples="the batches hold no tensor")
            else:
                elements, each, unequal = self._counts(pulled)
                added.append(self._add_to(f"{ELEMENTS}{each}", elements))
                if isinstance(unequal, tf.Tensor):
                    added.append(self._add_to(UNEQUAL, unequal))
            if not isinstance(first, tf.Tensor):
                return pulled
            with tf.control_dependencies(added), _beside(tf, first):
                counted = tf.identity(first)
        leaves = [counted if leaf is first else leaf for leaf in tf.nest.flatten(pulled)]
        return tf.nest.pack_sequence_as(pulled, leaves)

    def _counts(self, batch: Any) -> tuple[Any, int, Any]:
        """Return the elements of the first part, the elements per example, and 0 if all parts are equally long."""
        tf, parts = self._tf, _parts(self._tf, batch)
        (elements, each), *sizes = [_size(tf, part) for part in parts]
        known = first_dimensions(parts)
        if len(known - {None}) > 1:
            self.cannot_know(examples=PARTS_DIFFER)
        if not sizes or None not in known:
            return elements, each, 0
        with tf.device("CPU:0"):
            total = tf.add_n([more for more, _ in sizes])
            return elements, each, tf.abs(total * each - elements * sum(every for _, every in sizes))

    def _add_to(self, name: str, value: Any) -> Any:
        """Add to a variable. A strategy would replace a `tf.Variable`."""
        tf, kind = self._tf, value.dtype
        if name not in self._sums:
            with tf.init_scope(), tf.device("CPU:0"):
                variable = self._sums[name] = tf.raw_ops.VarHandleOp(dtype=kind, shape=[], shared_name=name)
                tf.raw_ops.AssignVariableOp(resource=variable, value=tf.zeros([], kind))
        with tf.device("CPU:0"):
            variable = tf.raw_ops.VarHandleOp(dtype=kind, shape=[], shared_name=name)
            return tf.raw_ops.AssignAddVariableOp(resource=variable, value=value)


@functools.cache
def the_feed() -> TensorFlowFeed:
    """Return the process's feed."""
    return TensorFlowFeed()


def _cannot_run() -> str:
    from tensorflow.python.eager import context
    from tensorflow.python.framework import ops
    from tensorflow.python.ops import summary_ops_v2
    from tensorflow.python.saved_model import save_context

    with ops.init_scope():
        by_session = not context.executing_eagerly()
    graph = ops.get_default_graph()
    while graph is not None and not getattr(graph, "name", "").startswith("Dataset_"):
        graph = getattr(graph, "outer_graph", None)
    for reason, holds in (
        ("a session runs the graph that reads the batches", by_session),
        ("a pipeline of tf.data reads the batches", graph is not None),
        ("functions may run on other machines", context.context()._server_def is not None),
        (LOGGED, logs_operations()),
        ("the function is being exported", save_context.in_save_context()),
        ("tf.summary traces the graph", summary_ops_v2._current_trace_context is not None),
    ):
        if holds:
            return reason
    return ""


def _reads(definition: Any) -> bool:
    bodies = [definition.node, *(function.node_def for function in definition.library.function)]
    return any("GetNext" in node.op for body in bodies for node in body)


def _parts(tf: Any, batch: Any) -> list[Any]:
    kinds = (tf.Tensor, tf.RaggedTensor, tf.SparseTensor)
    leaves = tf.nest.flatten(batch)
    known = [leaf for leaf in leaves if isinstance(leaf, kinds) or isinstance(getattr(leaf, "values", 0), tuple)]
    return [tensor for tensor in known if getattr(getattr(tensor, "shape", None), "rank", 1) != 0] or known[:1]


def _size(tf: Any, tensor: Any) -> tuple[Any, int]:
    replicas = getattr(tensor, "values", None)
    if isinstance(replicas, tuple):
        return tf.add_n([_rows(tf, tf.nest.flatten(part)[0]) for part in replicas]), 1
    if not isinstance(tensor, tf.Tensor):
        return _rows(tf, tensor), 1
    inner = tensor.shape[1:].as_list() if tensor.shape.rank else [None]
    each = 0 if None in inner else math.prod(inner)
    if not each:
        return _rows(tf, tensor), 1
    with _beside(tf, tensor):
        return tf.size(tensor, out_type=tf.int64), each


def _rows(tf: Any, tensor: Any) -> Any:
    if isinstance(tensor, tf.RaggedTensor):
        return tf.cast(tensor.nrows(), tf.int64)
    if isinstance(tensor, tf.SparseTensor):
        return tensor.dense_shape[0]
    with _beside(tf, tensor):
        shape = tf.shape(tensor, out_type=tf.int64)
        return shape[0] if tensor.shape.rank else tf.reduce_prod(shape[:1])


def _beside(tf: Any, tensor: Any) -> Any:
    """Counting must not copy a batch to another device."""
    return tf.compat.v1.get_default_graph().colocate_with(tensor.op)

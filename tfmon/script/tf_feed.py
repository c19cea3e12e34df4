"""How long a function waits for its input inside of its graph, and how many examples it gets: in every step.

Keras, and some loops, take the next batch inside of a graph, so a clock in Python cannot tell the wait from the
step. While such a graph is traced, time stamps are put before and after the operation that takes the batch. Their
difference and the size of the batch are added to variables, which are read once a window. Where these operations
might not run, or would be seen (`cannot_run`), there are none, and nothing is known of the input.

Costs, on a machine of two cores (`benchmarks/scripts.py` measures the whole): a variable that the graph
captures is one more argument of every call, 25 µs; one made inside of the graph, by its name, costs nothing.
`tf.shape(batch)[0]` wakes another thread, 20 µs; `tf.size` does not. An Identity makes the step wait for the
additions: otherwise both are ready at once, and a thread is woken for one of them.

Source: `tf.timestamp` before and after the iterator's `get_next`.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from tfmon.model.lane_clock import lane_clock
from tfmon.script.hooking import FILES, hooks
from tfmon.script.looking import logs_operations, rows_of
from tfmon.script.sources import NO_ROWS, PARTS_DIFFER, first_dimensions

FILES.add(__file__)
SCOPE = "tfmon/"
"""Scope of the operations' names, so that those of the script keep theirs."""
WAITED = "tfmon_waited"
"""Seconds waited for batches."""
BATCHES, UNEQUAL = "tfmon_batches", "tfmon_unequal"
"""Batches of train functions that run several steps, and a sum that is 0 if their parts are equally long."""
COUNTED = "_tfmon_counted"
"""Attribute of a graph whose batches are counted: what stays unknown of them, and why."""
BEFORE = "the step was traced before tfmon watched: compile the model, or define the function, where it watches"
ELEMENTS = "tfmon_elements_"
"""Prefix of variables with the elements of batches; the number that follows is the elements of an example."""


class TensorFlowFeed:
    """Adds up the waits and examples of the iterators that graphs, or the train functions of Keras, read.

    Thread: the one that trains. There is one in a process: its variables stay in the graphs that were traced with
    it.
    """

    def __init__(self) -> None:
        import tensorflow as tf

        self._tf = tf
        self.unknown: dict[str, str] = {}
        """What turned out to stay unknown since the last window, and why."""
        self.follows = 0
        """The thread that runs a train function of Keras, whose pulls are counted in or out of a graph; or 0."""
        self.avoided = ""
        """Why no graph may be counted that Keras traces now; empty where one may."""
        self.busy = False
        """True while a batch is being counted."""
        self._broken = False
        """True once a batch could not be counted: the sums are not known then."""
        self._waited_ns = self._examples = self._batches = self._unequal = 0
        self._seen_ns = self.suspended_ns = 0
        """What graphs had counted as a wait at the last look, and how long calls of them were suspended since."""
        self._sums: dict[str, Any] = {}

    def recall(self, functions: Any) -> None:  # noqa: ANN401
        """Have told again what stays unknown of the batches that traced functions read inside of their graphs."""
        for graph in (function.graph for function in functions):
            if hasattr(graph, COUNTED):
                self.unknown.update(getattr(graph, COUNTED))
            elif _reads(graph.as_graph_def()):
                self.unknown.update(examples=BEFORE, input=BEFORE)

    def cannot_know(self, **reasons: str) -> None:
        """Have told why something of the batches stays unknown; the graph that is built now keeps it."""
        self.unknown.update(reasons)
        graph: Any = self._tf.compat.v1.get_default_graph() if self._tf.inside_function() else None
        while hasattr(graph, "outer_graph"):
            setattr(graph, COUNTED, {**getattr(graph, COUNTED, {}), **reasons})
            graph = graph.outer_graph

    def waits_ns(self) -> int:
        """Return nanoseconds waited for batches since the start, as far as they are known."""
        if WAITED not in self._sums:
            return self._waited_ns
        return self._counted_ns(self._read(WAITED)) + self._waited_ns

    def _counted_ns(self, seconds: float) -> int:
        """Return the wait that graphs have counted, without a suspension, of which their clock knows nothing.

        If they have counted as much as the suspension of their calls since the last look, it was in a wait.
        """
        waited_ns = int(seconds * 1e9)
        if waited_ns - self._seen_ns >= self.suspended_ns:
            self._waited_ns -= self.suspended_ns
        self._seen_ns, self.suspended_ns = waited_ns, 0
        return waited_ns

    def totals(self) -> tuple[int, int] | None:
        """Return nanoseconds waited for batches, and examples, since the start; None if they are not known."""
        if self._broken:
            return None
        if (unequal := self._read(UNEQUAL)) != self._unequal:
            self._unequal, self.unknown["examples"] = unequal, PARTS_DIFFER
        sizes = {name: name.removeprefix(ELEMENTS) for name in self._sums if name.startswith(ELEMENTS)}
        examples = sum(int(self._read(name)) // int(each) for name, each in sizes.items())
        return self.waits_ns(), self._examples + examples

    def batches(self) -> int:
        """Return the batches since the start that were counted, of calls that run several steps."""
        return self._batches + int(self._read(BATCHES))

    def _read(self, name: str) -> Any:  # noqa: ANN401
        """Return the value of a variable; 0 if nothing was added to it."""
        tf = self._tf
        if name not in self._sums:
            return 0
        with tf.device("CPU:0"):
            kind = tf.float64 if name == WAITED else tf.int64
            return tf.raw_ops.ReadVariableOp(resource=self._sums[name], dtype=kind).numpy()

    def counted(self, own: Any, iterator: Any, args: Any, kwargs: Any, *, optional: bool) -> Any:  # noqa: ANN401
        """Return the result of `own(iterator, …)`, and count it; an iterator read inside is not counted."""
        tf, began = self._tf, None
        self.busy = True
        try:
            began_ns = lane_clock.now_ns()
            with hooks:
                if tf.inside_function():
                    began = self._begin()
            with tf.control_dependencies(began or []):
                given = own(iterator, *args, **kwargs)
            counted = None
            with hooks:
                if began is not None:
                    counted = self._add(began, given, optional=optional)
                elif not tf.inside_function():
                    self._waited_ns += lane_clock.now_ns() - began_ns
                    if not optional or given.has_value():
                        rows = rows_of(given.get_value() if optional else given)
                        self._batches += 1
                        self._examples += next(iter(rows), 0)
                        if len(rows) != 1:
                            self.cannot_know(examples=PARTS_DIFFER if rows else NO_ROWS)
                    counted = given
            self._broken |= counted is None
            return given if counted is None else counted
        finally:
            self.busy = False

    def _begin(self) -> list[Any] | None:
        """Return the time stamp before a pull if one may be taken; None where nothing may be counted."""
        tf, reason = self._tf, self.avoided or cannot_run()
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

    def _add(self, began: list[Any], given: Any, *, optional: bool) -> Any:  # noqa: ANN401
        """Add up a batch, and return it; where possible as a tensor that is ready once the sums are."""
        tf = self._tf
        first = None if optional else next(iter(_parts(tf, given)), None)
        with tf.name_scope(SCOPE):
            after = given.has_value() if optional else tf.nest.flatten(given, expand_composites=True)[0]
            added = []
            if began:
                with tf.device("CPU:0"), tf.control_dependencies([after]):
                    added = [self._add_to(WAITED, tf.timestamp() - began[0])]
            if optional:

                def counts() -> Any:  # noqa: ANN401
                    elements, each, unequal = self._counts(given.get_value())
                    return tf.stack([elements // each, unequal, 1])

                # Both branches must return the same kind of number, so this counts examples, not elements.
                numbers = tf.unstack(tf.cond(after, counts, lambda: tf.zeros([3], tf.int64)))
                added += map(self._add_to, (f"{ELEMENTS}1", UNEQUAL, BATCHES), numbers)
            elif first is None:
                self.cannot_know(examples="the batches hold no tensor")
            else:
                elements, each, unequal = self._counts(given)
                added.append(self._add_to(f"{ELEMENTS}{each}", elements))
                if isinstance(unequal, tf.Tensor):
                    added.append(self._add_to(UNEQUAL, unequal))
            if not isinstance(first, tf.Tensor):
                return given
            with tf.control_dependencies(added), _beside(tf, first):
                counted = tf.identity(first)
        leaves = [counted if leaf is first else leaf for leaf in tf.nest.flatten(given)]
        return tf.nest.pack_sequence_as(given, leaves)

    def _counts(self, batch: Any) -> tuple[Any, int, Any]:  # noqa: ANN401
        """Return the elements of a batch's first part and of each of its examples.

        The third is 0 if all parts have as many examples: only a tensor if the shapes do not tell.
        """
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

    def _add_to(self, name: str, value: Any) -> Any:  # noqa: ANN401
        """Add a value to a variable of this name; not to a tf.Variable, which a strategy would replace."""
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
    """Return the one of this process."""
    return TensorFlowFeed()


def cannot_run() -> str:
    """Return why operations of tfmon may not be in the graph that is built now; empty where they may."""
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
        ("TensorFlow logs where operations run", logs_operations()),
        ("the function is being exported", save_context.in_save_context()),
        ("tf.summary traces the graph", summary_ops_v2._current_trace_context is not None),
    ):
        if holds:
            return reason
    return ""


def _reads(definition: Any) -> bool:  # noqa: ANN401
    """Return whether a graph, or a function that it calls, takes batches from an iterator."""
    bodies = [definition.node, *(function.node_def for function in definition.library.function)]
    return any("GetNext" in node.op for body in bodies for node in body)


def _parts(tf: Any, given: Any) -> list[Any]:  # noqa: ANN401
    """Return the tensors of a batch that have a first dimension, or replicas share; else the first tensor."""
    kinds = (tf.Tensor, tf.RaggedTensor, tf.SparseTensor)
    leaves = tf.nest.flatten(given)
    known = [leaf for leaf in leaves if isinstance(leaf, kinds) or isinstance(getattr(leaf, "values", 0), tuple)]
    return [one for one in known if getattr(getattr(one, "shape", None), "rank", 1) != 0] or known[:1]


def _size(tf: Any, tensor: Any) -> tuple[Any, int]:  # noqa: ANN401
    """Return the number of elements of a part of a batch and of each example; or its examples and 1."""
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


def _rows(tf: Any, tensor: Any) -> Any:  # noqa: ANN401
    """Return the first dimension of a tensor of any kind; 1 for a scalar."""
    if isinstance(tensor, tf.RaggedTensor):
        return tf.cast(tensor.nrows(), tf.int64)
    if isinstance(tensor, tf.SparseTensor):
        return tensor.dense_shape[0]
    with _beside(tf, tensor):
        shape = tf.shape(tensor, out_type=tf.int64)
        return shape[0] if tensor.shape.rank else tf.reduce_prod(shape[:1])


def _beside(tf: Any, tensor: Any) -> Any:  # noqa: ANN401
    """Return a scope that puts operations on a tensor's device: a batch must not be copied to be counted."""
    return tf.compat.v1.get_default_graph().colocate_with(tensor.op)

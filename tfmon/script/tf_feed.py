"""How long the train function waits for its input, and how many examples it gets: exact, in every step.

Keras takes the next batch inside of the train function, a graph, so a clock in Python cannot tell the wait from
the step. While that graph is traced, time stamps are put before and after the operation that takes the batch.
Their difference and the size of the batch are added to variables, which are read once a window.

Costs, on a machine of two cores (`tests/benchmarks/scripts.py` measures the whole): a variable that the graph
captures is one more argument of every call, 25 µs; one made inside of the graph, by its name, costs nothing.
`tf.shape(batch)[0]` wakes another thread, 20 µs; `tf.size` does not. An Identity makes the step wait for the
additions: otherwise both are ready at once, and a thread is woken for one of them.

Source: `tf.timestamp` before and after the iterator's `get_next`.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from tfmon.script.hooking import FILES, unseen
from tfmon.script.meter import InputMeter

FILES.add(__file__)
WAITED = "tfmon_waited"
"""Seconds waited for batches."""
ELEMENTS = "tfmon_elements_"
"""Prefix of variables with the elements of batches; the number that follows is the elements of an example."""


class TensorFlowFeed(InputMeter):
    """Adds up the waits and examples of the iterators that train functions read.

    Thread: the one that trains. There is one in a process: its variables stay in the graphs that were traced with
    it.
    """

    def __init__(self) -> None:
        import tensorflow as tf

        self._tf = tf
        self._kinds: set[type] = set()
        self._following = False
        self.busy = False
        """True while a batch is being counted."""
        self._broken = False
        """True once a batch could not be counted: the sums are not known then."""
        self._eager_waited_s, self._eager_examples = 0.0, 0
        self._elements: dict[int, Any] = {}
        self._waited = self._make(WAITED, tf.float64)

    def totals(self) -> tuple[int, int] | None:
        """Return nanoseconds waited for batches, and examples, since the start; None if they are not known."""
        if self._broken:
            return None
        waited_s = self._eager_waited_s + float(self._read(self._waited, self._tf.float64))
        examples = self._eager_examples
        for each, variable in self._elements.items():
            examples += int(self._read(variable, self._tf.int64)) // each
        return int(waited_s * 1e9), examples

    def follow(self, iterator: Any) -> None:  # noqa: ANN401
        """Count the batches of this iterator, and of no other, until `follow(None)`."""
        self._following = iterator is not None
        kind = type(iterator)
        if iterator is None or kind in self._kinds or not hasattr(kind, "get_next"):
            return
        self._kinds.add(kind)
        for name in ("__next__", "get_next", "get_next_as_optional"):
            if hasattr(kind, name):
                setattr(kind, name, self._counted(getattr(kind, name), optional=name == "get_next_as_optional"))

    def _counted(self, own: Any, *, optional: bool) -> Any:  # noqa: ANN401
        def counted(iterator: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            following, self._following = self._following, False
            try:
                if not following:
                    return own(iterator, *args, **kwargs)
                return self.counted(own, iterator, args, kwargs, optional=optional)
            except BaseException as error:
                unseen(error)
                raise
            finally:
                self._following = following

        return counted

    def counted(self, own: Any, iterator: Any, args: Any, kwargs: Any, *, optional: bool) -> Any:  # noqa: ANN401
        """Return what `own(iterator, …)` gives, and count it; an iterator that it reads inside is not counted."""
        tf = self._tf
        self.busy = True
        try:
            with tf.device("CPU:0"):
                began = tf.timestamp()
            with tf.control_dependencies([began]):
                given = own(iterator, *args, **kwargs)
            try:
                return self._add(began, given, optional=optional)
            except Exception:  # noqa: BLE001 - the script must go on without a count
                self._broken = True
                return given
        finally:
            self.busy = False

    def _add(self, began: Any, given: Any, *, optional: bool) -> Any:  # noqa: ANN401
        """Add up a batch, and return it; where possible as a tensor that is ready once the sums are."""
        tf = self._tf
        first = None if optional else _first(tf, given)
        after = given.has_value() if optional else tf.nest.flatten(given, expand_composites=True)[0]
        with tf.device("CPU:0"), tf.control_dependencies([after]):
            waited = tf.timestamp() - began
        if optional:
            # Both branches must return the same kind of number, so this counts examples, not elements.
            length = tf.cond(after, lambda: self._length(given.get_value()), lambda: tf.constant(0, tf.int64))
            elements, each = length, 1
        elif first is not None and tf.inside_function():
            elements, each = _size(tf, first)
        else:
            elements, each = self._length(given), 1
        if not tf.inside_function():
            self._eager_waited_s += float(waited)
            self._eager_examples += int(elements)
            return given
        if each not in self._elements:
            self._elements[each] = self._make(f"{ELEMENTS}{each}", tf.int64)
        added = [self._add_to(WAITED, waited), self._add_to(f"{ELEMENTS}{each}", elements)]
        if first is None:
            return given
        with tf.control_dependencies(added), _beside(tf, first):
            counted = tf.identity(first)
        leaves = [counted if leaf is first else leaf for leaf in tf.nest.flatten(given)]
        return tf.nest.pack_sequence_as(given, leaves)

    def _length(self, batch: Any) -> Any:  # noqa: ANN401
        """Return the first dimension of a batch, over all replicas where it is split up."""
        tf = self._tf
        first = tf.nest.flatten(batch)[0]
        parts = getattr(first, "values", None)
        parts = parts if isinstance(parts, tuple) else (first,)
        lengths = [_rows(tf, tf.nest.flatten(part)[0]) for part in parts]
        return tf.add_n(lengths) if len(lengths) > 1 else lengths[0]

    # ------------------------------------------------------------ variables; a strategy replaces a tf.Variable

    def _make(self, name: str, dtype: Any) -> Any:  # noqa: ANN401
        tf = self._tf
        with tf.init_scope(), tf.device("CPU:0"):
            variable = tf.raw_ops.VarHandleOp(dtype=dtype, shape=[], shared_name=name)
            tf.raw_ops.AssignVariableOp(resource=variable, value=tf.zeros([], dtype))
        return variable

    def _read(self, variable: Any, dtype: Any) -> Any:  # noqa: ANN401
        with self._tf.device("CPU:0"):
            return self._tf.raw_ops.ReadVariableOp(resource=variable, dtype=dtype).numpy()

    def _add_to(self, name: str, value: Any) -> Any:  # noqa: ANN401
        tf = self._tf
        with tf.device("CPU:0"):
            variable = tf.raw_ops.VarHandleOp(dtype=value.dtype, shape=[], shared_name=name)
            return tf.raw_ops.AssignAddVariableOp(resource=variable, value=value)


@functools.cache
def the_feed() -> TensorFlowFeed:
    """Return the one of this process."""
    return TensorFlowFeed()


def _first(tf: Any, given: Any) -> Any:  # noqa: ANN401
    """Return the first tensor of a batch; None if it is ragged, sparse or split over replicas."""
    first = tf.nest.flatten(given)[0]
    return first if isinstance(first, tf.Tensor) else None


def _size(tf: Any, tensor: Any) -> tuple[Any, int]:  # noqa: ANN401
    """Return the number of elements of a batch and of each example; if that is unknown, its examples and 1."""
    inner = tensor.shape[1:].as_list() if tensor.shape.rank else [None]
    each = 0 if None in inner else math.prod(inner)
    if not each:
        return _rows(tf, tensor), 1
    with _beside(tf, tensor):
        return tf.size(tensor, out_type=tf.int64), each


def _rows(tf: Any, tensor: Any) -> Any:  # noqa: ANN401
    """Return the first dimension of a tensor of any kind."""
    if isinstance(tensor, tf.RaggedTensor):
        return tf.cast(tensor.nrows(), tf.int64)
    if isinstance(tensor, tf.SparseTensor):
        return tensor.dense_shape[0]
    with _beside(tf, tensor):
        return tf.shape(tensor, out_type=tf.int64)[0]


def _beside(tf: Any, tensor: Any) -> Any:  # noqa: ANN401
    """Return a scope that puts operations on a tensor's device: a batch must not be copied to be counted."""
    if tf.inside_function():
        return tf.compat.v1.get_default_graph().colocate_with(tensor.op)
    return tf.device(tensor.device)

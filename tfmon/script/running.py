"""Changes the pipeline of an iterator while a script reads it, for loops that never iterate anew.

The iterator object stays the script's; what it reads from is exchanged. The new pipeline first reads what the one
before has ready, then goes on with the script's own iterator:

    rest of the pipeline before + (numbers, while its gate is open, mapped to the next batch of the script's own)

To change, the gate of the pipeline in place is closed, so that it ends after the batches that it has begun. So
every element comes once and in order. Back at the script's own settings, its own iterator is put in place again
once the rest is read.

Each batch passes through one more pipeline as long as one is in place. What that costs is measured once.

Source: `OwnedIterator._iterator_resource`, which all ways to read an iterator use, in TensorFlow 2.18 and 2.21.
"""

from __future__ import annotations

import contextlib
import gc
import statistics
import time
from collections.abc import Iterator
from typing import Any

from tfmon.model.knobs import KnobError, KnobValue
from tfmon.script.datasets import with_prefetch

COST_PULLS = 30
"""Batches read with and without a pipeline more, to measure what it costs."""
LEAST_COST_NS = 30_000
"""The least that a batch through one more pipeline costs on any machine."""
CLOSED = -(2**62)


class RunningIterator:
    """One iterator of a script, and the pipeline between it and the script.

    Thread: the one that trains, between two pulls of the iterator.
    """

    def __init__(self, iterator: Any) -> None:  # noqa: ANN401
        """Change nothing yet.

        Raises: KnobError for an iterator that cannot be exchanged.
        """
        from tensorflow.python.data.ops import iterator_ops

        if type(iterator) is not iterator_ops.OwnedIterator:
            raise KnobError("the script reads from a distribution strategy's iterator, which stays as it is")
        if is_checkpointed(iterator):
            raise KnobError("the script saves this iterator in its checkpoints, so it stays as it is")
        self._make = iterator_ops.OwnedIterator
        self._own = self._make(components=(iterator._iterator_resource,), element_spec=iterator.element_spec)
        self._own._dataset = iterator._dataset
        self._now = self._own
        self._gate: Any = None
        self._leaving = False

    @property
    def in_place(self) -> bool:
        """Whether each batch passes through one more pipeline."""
        return self._now is not self._own

    def change(self, iterator: Any, prefetch: KnobValue, batch_size: int | None) -> None:  # noqa: ANN401
        """Put another pipeline in place.

        Args:
            iterator: the script's.
            prefetch: batches ready ahead, beyond what the script's own iterator has ready.
            batch_size: examples in a batch; None for the script's own.
        """
        import tensorflow as tf

        gate = _gate(tf)
        with _uncollected(), tf.init_scope(), tf.device("CPU:0"):
            dataset = _through(tf, self._own, gate)
            if batch_size is not None:
                dataset = dataset.rebatch(batch_size)
            if self.in_place:
                tf.raw_ops.AssignVariableOp(resource=self._gate, value=tf.constant(CLOSED, tf.int64))
                dataset = _through(tf, self._now, None).concatenate(dataset)
            dataset = with_prefetch(dataset, prefetch).with_options(_options(tf))
            self._now = self._make(dataset)
        self._gate = gate
        self._leaving = prefetch == "off" and batch_size is None
        iterator._iterator_resource = self._now._iterator_resource

    def settle(self, iterator: Any) -> bool:  # noqa: ANN401
        """Put the script's own iterator in place again if that is due and the rest is read; return whether."""
        if not (self._leaving and self.in_place):
            return False
        import tensorflow as tf

        with tf.device("CPU:0"):
            read = int(tf.raw_ops.ReadVariableOp(resource=self._gate, dtype=tf.int64))
        if read > 0:
            self._now, self._gate, self._leaving = self._own, None, False
            iterator._iterator_resource = self._own._iterator_resource
        return read > 0


def cost_ns() -> int:
    """Return by how much a batch through one more pipeline takes longer, measured now."""
    import tensorflow as tf
    from tensorflow.python.data.ops import iterator_ops

    with tf.init_scope(), tf.device("CPU:0"):
        numbers = iterator_ops.OwnedIterator(tf.data.Dataset.range(CLOSED, -CLOSED).with_options(_options(tf)))
    alone = _pull_ns(numbers)
    RunningIterator(numbers).change(numbers, "off", None)
    return max(LEAST_COST_NS, _pull_ns(numbers) - alone)


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Keep the collector from running while graphs are built.

    Their objects make it look through all of TensorFlow's, which takes 0.3 s, and 2.5 s the first time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def is_checkpointed(iterator: object) -> bool:
    """Return whether a `tf.train.Checkpoint` saves an iterator, which it could not with a pipeline in place."""
    return any(type(one).__name__ in ("TrackableReference", "Checkpoint") for one in gc.get_referrers(iterator))


def _pull_ns(iterator: Any) -> int:  # noqa: ANN401
    times = []
    for _ in range(COST_PULLS):
        began_ns = time.perf_counter_ns()
        iterator._next_internal()
        times.append(time.perf_counter_ns() - began_ns)
    return round(statistics.median(times))


def _through(tf: Any, iterator: Any, gate: Any) -> Any:  # noqa: ANN401
    """Return a dataset of what an iterator gives until it ends, or until its gate is closed."""
    from tensorflow.python.data.ops.map_op import _MapDataset

    def is_open(_number: Any) -> Any:  # noqa: ANN401
        tf.raw_ops.AssignAddVariableOp(resource=gate, value=tf.constant(1, tf.int64))
        return tf.raw_ops.ReadVariableOp(resource=gate, dtype=tf.int64) > 0

    numbers = tf.data.Dataset.range(-CLOSED)
    if gate is not None:
        numbers = numbers.take_while(is_open)
    # Without the promise to keep the number of elements, the end of the iterator is the end of the dataset.
    return _MapDataset(numbers, lambda _: iterator._next_internal(), preserve_cardinality=False)


def _gate(tf: Any) -> Any:  # noqa: ANN401
    """Return a variable that counts what passes; closed below 0. A strategy would replace a tf.Variable."""
    with tf.init_scope(), tf.device("CPU:0"):
        gate = tf.raw_ops.VarHandleOp(dtype=tf.int64, shape=[], shared_name=_ANONYMOUS)
        tf.raw_ops.AssignVariableOp(resource=gate, value=tf.zeros([], tf.int64))
    return gate


_ANONYMOUS = "cd2c89b7-88b7-44c8-ad83-06c2a9158347"
"""TensorFlow's name for a resource that ends with the last reference to it."""


def _options(tf: Any) -> Any:  # noqa: ANN401
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    options.experimental_optimization.apply_default_optimizations = False
    options.deterministic = True
    return options

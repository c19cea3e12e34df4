"""How long the train function waits for its input, and how many examples it gets: exact, in every step.

Keras takes the next batch inside of the train function, a graph, so no clock in Python can tell the wait from
the step. While that graph is traced, the operation that takes the batch gets a time stamp before and after it,
and both their difference and the length of the batch are added to a variable, which is read once a window. Four
small operations a step; `tests/benchmarks/scripts.py` measures what they cost.

Source: `tf.timestamp` before and after the iterator's `get_next`.
"""

from __future__ import annotations

from typing import Any

from tfmon.script.meter import Feed

WAITED, EXAMPLES = 0, 1


class TensorFlowFeed(Feed):
    """Adds up what the iterators of train functions give.

    Thread: the one that trains. One a process: it stays in the graphs that were traced with it.
    """

    def __init__(self) -> None:
        import tensorflow as tf

        self._tf = tf
        self._kinds: set[type] = set()
        self._following = False
        self._eager = [0.0, 0.0]
        # No tf.Variable: under a strategy's scope that would be another kind of one.
        with tf.init_scope(), tf.device("CPU:0"):
            self._sums = tf.raw_ops.VarHandleOp(dtype=tf.float64, shape=[2], shared_name="tfmon_feed")
            tf.raw_ops.AssignVariableOp(resource=self._sums, value=tf.zeros([2], tf.float64))

    def totals(self) -> tuple[int, int] | None:
        """Return nanoseconds waited for batches, and examples, since the start."""
        tf = self._tf
        with tf.device("CPU:0"):
            sums = tf.raw_ops.ReadVariableOp(resource=self._sums, dtype=tf.float64).numpy()
        waited_s, examples = (sums[place] + self._eager[place] for place in (WAITED, EXAMPLES))
        return int(waited_s * 1e9), round(examples)

    def follow(self, iterator: Any) -> None:  # noqa: ANN401
        """Count what this iterator gives from now on, until `follow(None)`; others are not counted."""
        self._following = iterator is not None
        kind = type(iterator)
        if iterator is None or kind in self._kinds or not hasattr(kind, "get_next"):
            return
        self._kinds.add(kind)
        for name in ("get_next", "get_next_as_optional"):
            if hasattr(kind, name):
                setattr(kind, name, self._counted(getattr(kind, name), optional=name != "get_next"))

    def _counted(self, own: Any, *, optional: bool) -> Any:  # noqa: ANN401
        tf = self._tf

        def counted(iterator: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            if not self._following:
                return own(iterator, *args, **kwargs)
            # What an iterator does inside of it is a part of it, and no other batch.
            self._following = False
            try:
                with tf.device("CPU:0"):
                    began = tf.timestamp()
                with tf.control_dependencies([began]):
                    given = own(iterator, *args, **kwargs)
                self._add(began, given, optional=optional)
            finally:
                self._following = True
            return given

        return counted

    def _add(self, began: Any, given: Any, *, optional: bool) -> None:  # noqa: ANN401
        tf = self._tf
        after = given.has_value() if optional else tf.nest.flatten(given, expand_composites=True)[0]
        with tf.device("CPU:0"), tf.control_dependencies([after]):
            waited = tf.timestamp() - began
            if optional:
                examples = tf.cond(
                    after, lambda: self._length(given.get_value()), lambda: tf.constant(0.0, tf.float64)
                )
            else:
                examples = self._length(given)
            if tf.inside_function():
                value = tf.stack([waited, examples])
                tf.raw_ops.AssignAddVariableOp(resource=self._sums, value=value)
            else:
                self._eager[WAITED] += float(waited)
                self._eager[EXAMPLES] += float(examples)

    def _length(self, batch: Any) -> Any:  # noqa: ANN401
        """Return the first dimension of a batch, over all replicas where it is split up."""
        tf = self._tf
        first = tf.nest.flatten(batch)[0]
        parts = getattr(first, "values", None)
        parts = parts if isinstance(parts, tuple) else (first,)
        lengths = [tf.shape(tf.nest.flatten(part, expand_composites=True)[0])[0] for part in parts]
        return tf.cast(tf.add_n(lengths) if len(lengths) > 1 else lengths[0], tf.float64)

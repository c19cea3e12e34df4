"""Several devices that train one model: each has a replica, and takes its part of every batch.

The batch is split inside of the step, on the host, so the input pipeline is that of one device and its knobs mean
the same. `tf.distribute` adds the gradients up over the devices, and keeps the weights of all replicas equal.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from tfmon.model.knobs import KnobError, Settings
from tfmon.model.spec import obstacle
from tfmon.trainer.scenario import ScenarioError

RUNS_IN_PYTHON = "this step runs in Python, and so on one device: several need a step that is a tf.function"


class Replicas:
    """The devices of a lane.

    Thread: any.
    """

    def __init__(self, kind: str = "cpu", count: int = 1) -> None:
        """Make the strategy for several devices; one needs none."""
        self.count = count
        self._strategy: Any = None
        if count > 1:
            import tensorflow as tf

            names = [f"{kind.upper()}:{index}" for index in range(count)]
            self._strategy = tf.distribute.MirroredStrategy(names)

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context in which variables are made, one for each device; each thread enters it."""
        return contextlib.nullcontext() if self._strategy is None else self._strategy.scope()

    def check(self, settings: Settings) -> None:
        """Check that the devices can train together under these settings.

        Errors: KnobError.
        """
        reason = obstacle(settings, self.count)
        if reason:
            raise KnobError(reason)

    def together(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """Return a step of all devices: it takes the batch of all, and returns the mean of their losses.

        Errors: ScenarioError for a step that runs in Python.
        """
        if self._strategy is None:
            return step
        if getattr(step, "runs_in_python", False):
            raise ScenarioError(RUNS_IN_PYTHON)
        strategy = self._strategy

        def train(*batch: Any) -> Any:  # noqa: ANN401
            import tensorflow as tf

            split = [self._split(tensor) for tensor in tf.nest.flatten(batch)]
            parts = [tf.nest.pack_sequence_as(batch, [one[place] for one in split]) for place in range(self.count)]
            own = strategy.experimental_distribute_values_from_function(
                lambda context: parts[context.replica_id_in_sync_group]
            )
            losses = strategy.run(lambda *part: _mean(step(*part)), args=own)
            return None if losses is None else strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

        return train

    def _split(self, tensor: Any) -> Any:  # noqa: ANN401
        """Return the parts of a tensor, as equal as can be; a scalar belongs to each of them."""
        import tensorflow as tf

        with tf.device("CPU:0"):
            tensor = tf.convert_to_tensor(tensor)
            if tensor.shape.rank == 0:
                return [tensor] * self.count
            size = tf.shape(tensor)[0]
            return tf.split(tensor, [(size + place) // self.count for place in reversed(range(self.count))])


def _mean(loss: Any) -> Any:  # noqa: ANN401
    """Return one number for the loss of a replica, so that no more than that is copied; None for none."""
    import tensorflow as tf

    if loss is None:
        return None
    loss = tf.convert_to_tensor(loss)
    return loss if loss.shape.rank == 0 else tf.reduce_mean(tf.cast(loss, tf.float32))

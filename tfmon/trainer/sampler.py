"""Single steps between two windows, with a barrier on both sides, to tell a slow device from a slow host.

A step call returns before the device has done its work, on any device that works asynchronously; so the time of a
plain step does not say where it went. Reading the loss is the barrier that works on every device: it waits until
all is done. A window ends with such a read, so the device stands idle when a sampled step begins, and nothing of
it is counted in a window.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tfmon.trainer.pipeline import Feed, count_examples
from tfmon.trainer.step_clock import Samples, rest_ns


class Sampler:
    """Takes sampled steps when one is due.

    Thread: the one that trains.
    """

    def __init__(self, kind: str) -> None:
        self.samples = Samples()
        self._device = "GPU:0" if kind == "gpu" else None
        self._due_ns = 0
        self._drops = True

    @property
    def copies(self) -> bool:
        """Whether batches are copied to the device, so that the copy has a time of its own."""
        return self._device is not None

    def due(self, now_ns: int) -> bool:
        """Return whether it is time for another one."""
        return now_ns >= self._due_ns

    def expect_change(self) -> None:
        """Drop the next one: a function's first call with a batch on the device builds it anew, 50 to 95 ms."""
        self._drops, self._due_ns = True, 0

    def take(self, feed: Feed, step: Callable[..., Any], period_ns: float) -> Any:  # noqa: ANN401
        """Train one step and return its loss; `period_ns` is what a plain step takes.

        Errors: StopIteration at the end of the data; whatever the model or the pipeline raise.
        """
        clock_ns = time.monotonic_ns
        began_ns = clock_ns()
        batch = next(feed.batches)
        fed_ns = clock_ns()
        if self._device is not None:
            batch = _on(self._device, batch)
        copied_ns = clock_ns()
        loss = step(*batch)
        called_ns = clock_ns()
        if loss is not None:
            np.mean(loss)
        ended_ns = clock_ns()
        known = feed.batch_examples
        self._due_ns = ended_ns + rest_ns(ended_ns - began_ns - period_ns)
        self.samples.examples += count_examples(batch) if known is None else known
        if self._drops:
            self._drops, self._due_ns = False, 0
            return loss
        self.samples.steps += 1
        self.samples.input_ns += fed_ns - began_ns
        self.samples.copy_ns += copied_ns - fed_ns
        self.samples.call_ns += called_ns - copied_ns
        self.samples.tail_ns += ended_ns - called_ns
        return loss


def _on(device: str, batch: Any) -> Any:  # noqa: ANN401
    import tensorflow as tf

    with tf.device(device):
        return tf.nest.map_structure(tf.identity, batch)

"""The innermost loop of a scenario's lane."""

from __future__ import annotations

from collections.abc import Callable, Sized
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tfmon.system.lane_clock import lane_clock
from tfmon.trainer.batch_feed import BatchFeed, count_examples
from tfmon.trainer.capture import Capture
from tfmon.trainer.scenario import ScenarioError
from tfmon.trainer.step_clock import Sampler, Samples, StepClock
from tfmon.trainer.traces import TraceWatch

DATA_ENDED = "the data ended: `batches` must return a Dataset that repeats"


class Stepper:
    """Trains steps. Feed and step can be replaced. Thread: the training thread."""

    def __init__(
        self, feed: BatchFeed, step: Callable[..., Any], clock: StepClock, waiting: Sized, device: str = "cpu"
    ) -> None:
        """On a `gpu`, a sampled batch is copied separately."""
        self.feed = feed
        self.step = step
        self.reads_loss = False
        self.loss: Any = None
        self.traces: TraceWatch | None = None
        self.copies = device == "gpu"
        self._clock = clock
        self._waiting = waiting

    def until(self, deadline_ns: int, limit: int) -> int:
        """Train at least one step until the deadline, the limit or a message. Return the last step's end.

        Raises: ScenarioError when the data ends; all errors of model or pipeline.
        """
        clock_ns, step, batches = lane_clock.now_ns, self.step, self.feed.batches
        clock, waiting = self._clock, self._waiting
        times, first = clock.times, clock.kept
        size, reads = self.feed.batch_examples, self.reads_loss
        traces = self.traces
        assert traces is not None
        seen = traces.count
        steps = input_ns = call_ns = sync_ns = examples = 0
        began_ns = clock_ns()
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                raise ScenarioError(DATA_ENDED) from None
            fed_ns = clock_ns()
            self.loss = step(*batch)
            ended_ns = called_ns = clock_ns()
            if reads:
                self.read_loss()
                ended_ns = clock_ns()
                sync_ns += ended_ns - called_ns
            times[first + steps] = ended_ns - began_ns
            steps += 1
            input_ns += fed_ns - began_ns
            call_ns += called_ns - fed_ns
            if traces.count != seen:
                seen = traces.count
                clock.traced_steps += 1
                clock.traced_ns += called_ns - fed_ns
            examples += count_examples(batch) if size is None else size
            began_ns = ended_ns
            if ended_ns >= deadline_ns or steps >= limit or waiting:
                break
        clock.count(steps)
        clock.done += steps
        clock.examples += examples
        clock.input_ns += input_ns
        clock.call_ns += call_ns
        clock.sync_ns += sync_ns
        clock.last_end_ns = ended_ns
        return ended_ns

    def read_loss(self) -> float | None:
        """Wait for the last loss."""
        if self.loss is None:
            return None
        loss = np.asarray(self.loss)
        return float(loss if loss.ndim == 0 else loss.mean())

    def sample(self, sampler: Sampler, step_ns: float) -> None:
        """Train a step between two barriers, in no window."""
        clock_ns = lane_clock.now_ns
        began_ns = clock_ns()
        batch = next(self.feed.batches, None)
        if batch is None:
            raise ScenarioError(DATA_ENDED)
        fed_ns = clock_ns()
        if self.copies:
            batch = _on_gpu(batch)
        copied_ns = clock_ns()
        self.loss = self.step(*batch)
        called_ns = clock_ns()
        self.read_loss()
        ended_ns = clock_ns()
        size = self.feed.batch_examples
        sample = Samples(
            steps=1,
            examples=count_examples(batch) if size is None else size,
            input_ns=fed_ns - began_ns,
            copy_ns=copied_ns - fed_ns,
            call_ns=called_ns - copied_ns,
            tail_ns=ended_ns - called_ns,
        )
        sampler.add(sample, ended_ns, ended_ns - began_ns - step_ns)
        self._clock.done += 1
        self._clock.last_end_ns = clock_ns()

    def capture(self, folder: Path, steps: int, deadline_ns: int = 1 << 62) -> Path:
        """Profile at least one step, after a slow first step. Raises CaptureError."""
        capture, plain = Capture(folder), (self.feed, self.step)
        try:
            capture.start()
            self.until(0, 1)
            batches, self.step = capture.follow(self.feed.batches, self.step)
            self.feed = replace(self.feed, batches=batches)
            goal = self._clock.done + steps
            while self._clock.done < goal:
                if self.until(deadline_ns, goal - self._clock.done) >= deadline_ns:
                    break
            batches.close()
            self.read_loss()
            return capture.stop()
        finally:
            self.feed, self.step = plain
            capture.abandon()


def _on_gpu(batch: Any) -> Any:
    import tensorflow as tf

    with tf.device("GPU:0"):
        return tf.nest.map_structure(tf.identity, batch)

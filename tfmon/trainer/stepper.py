"""The innermost loop of a lane: takes a batch, trains a step, takes the times; and the same under the profiler."""

from __future__ import annotations

import time
from collections.abc import Callable, Sized
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tfmon.trainer.capture import Capture
from tfmon.trainer.loader import ScenarioError
from tfmon.trainer.pipeline import Feed, count_examples
from tfmon.trainer.sampler import Sampler
from tfmon.trainer.step_clock import StepClock
from tfmon.trainer.tracing import TraceWatch

DATA_ENDED = "the data ended: `batches` must return a Dataset that repeats"


class Stepper:
    """Trains steps with one feed and one step function after another; the weights stay.

    Thread: the one that trains.
    """

    def __init__(self, feed: Feed, step: Callable[..., Any], clock: StepClock, waiting: Sized) -> None:
        """Train until told, or until `waiting` holds something; the times go to the clock."""
        self.feed = feed
        self.step = step
        self.reads_loss = False
        """Whether the loss is read after each step, which is a wait for the device."""
        self.done = 0
        """Steps since the lane was ready."""
        self.last_end_ns = 0
        """When the last step ended."""
        self.loss: Any = None
        """The last step's, a tensor."""
        self.traces: TraceWatch | None = None
        self._clock = clock
        self._waiting = waiting

    def begin(self) -> None:
        """Notice from now on when a function is traced in this thread."""
        self.traces = TraceWatch()

    def end(self) -> None:
        """Leave TensorFlow as it was."""
        if self.traces is not None:
            self.traces.close()

    def until(self, deadline_ns: int, limit: int) -> int:
        """Train until the deadline, the limit or a letter, but one step at least; return the last step's end.

        Errors: ScenarioError when the data end; whatever the model or the pipeline raise.
        """
        clock_ns, step, batches = time.monotonic_ns, self.step, self.feed.batches
        times, waiting = self._clock.times, self._waiting
        size, reads = self.feed.batch_examples, self.reads_loss
        traces = self.traces
        assert traces is not None
        seen = traces.count
        steps = input_ns = call_ns = sync_ns = examples = longest_ns = 0
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
            times[steps] = ended_ns - began_ns
            steps += 1
            input_ns += fed_ns - began_ns
            call_ns += called_ns - fed_ns
            if called_ns - fed_ns > longest_ns:
                longest_ns = called_ns - fed_ns
            if traces.count != seen:
                seen = traces.count
                self._clock.traced_steps += 1
                self._clock.traced_ns += called_ns - fed_ns
            examples += count_examples(batch) if size is None else size
            began_ns = ended_ns
            if ended_ns >= deadline_ns or steps >= limit or waiting:
                break
        self._clock.count(steps)
        self.done += steps
        self._clock.examples += examples
        self._clock.input_ns += input_ns
        self._clock.call_ns += call_ns
        self._clock.sync_ns += sync_ns
        self._clock.longest_call_ns = max(self._clock.longest_call_ns, longest_ns)
        self.last_end_ns = ended_ns
        return ended_ns

    def read_loss(self) -> float | None:
        """Read the last step's loss, and by that wait for the device to finish it."""
        return None if self.loss is None else float(np.mean(self.loss))

    def sample(self, sampler: Sampler, period_ns: float) -> None:
        """Train one step between two barriers; it is in no window.

        Errors: as of `until`.
        """
        try:
            self.loss = sampler.take(self.feed, self.step, period_ns)
        except StopIteration:
            raise ScenarioError(DATA_ENDED) from None
        self.done += 1
        self.last_end_ns = time.monotonic_ns()

    def capture(self, folder: Path, steps: int, deadline_ns: int = 1 << 62) -> Path:
        """Train so many steps under the profiler, or until the deadline but one at least; return the profile.

        Before them comes one without a marker: the first step under the profiler is slow.

        Errors: CaptureError.
        """
        capture, plain = Capture(folder), (self.feed, self.step)
        try:
            capture.start()
            self.until(0, 1)
            batches, self.step = capture.follow(self.feed.batches, self.step)
            self.feed = replace(self.feed, batches=batches)
            goal = self.done + steps
            while self.done < goal:
                if self.until(deadline_ns, goal - self.done) >= deadline_ns:
                    break
            batches.close()
            self.read_loss()
            return capture.stop()
        finally:
            self.feed, self.step = plain
            capture.abandon()

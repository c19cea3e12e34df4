"""The innermost loop of a lane: takes a batch, trains a step, takes the times; and the same under the profiler."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sized
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tfmon.trainer.capture import Capture
from tfmon.trainer.loader import ScenarioError
from tfmon.trainer.pipeline import BatchFeed, count_examples
from tfmon.trainer.step_clock import Sampler, StepClock

DATA_ENDED = "the data ended: `batches` must return a Dataset that repeats"


class Stepper:
    """Trains steps with one feed and one step function after another; the weights stay.

    Thread: the one that trains.
    """

    def __init__(self, feed: BatchFeed, step: Callable[..., Any], clock: StepClock, waiting: Sized) -> None:
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
        """Train until the deadline, the limit or a message, but one step at least; return the last step's end.

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


# ---------------- notices when a tf.function is traced in the training loop, and what made it trace anew


MOST_WORDS = 120
"""Characters of a description."""


class TraceWatch:
    """Counts the graphs that TensorFlow builds for tf.functions in one thread.

    Tracing makes a `FuncGraph`; those of loops and branches inside of it, and those that the preparer or a
    pipeline builds in another thread, are not counted. A function's own `experimental_get_tracing_count` would
    do for the lane's step alone, but not for the functions that a step of the user's calls.

    Thread: made and read in the thread that trains.
    """

    def __init__(self) -> None:
        import tensorflow as tf

        self.count = 0
        """Traces since the start."""
        self._graphs: list[Any] = []
        self._thread = threading.get_ident()
        graph_type: Any = tf.__internal__.FuncGraph
        build = graph_type.__init__

        def note(graph: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
            if threading.get_ident() == self._thread and not tf.inside_function():
                self.count += 1
                self._graphs = [*self._graphs[-1:], graph]
            build(graph, *args, **kwargs)

        graph_type.__init__ = note
        self._graph_type, self._build = graph_type, build

    def close(self) -> None:
        """Stop counting."""
        self._graph_type.__init__ = self._build

    def cause(self) -> str:
        """Say which function was traced last, and which argument differed from the time before, if one did."""
        if not self._graphs:
            return ""
        *before, last = self._graphs
        name = str(getattr(last, "name", "")) or "a tf.function"
        if not before or getattr(before[0], "name", "") != getattr(last, "name", ""):
            return name
        difference = _difference(_arguments(before[0]), _arguments(last))
        return f"{name}: {difference}"[:MOST_WORDS] if difference else name


def _arguments(graph: Any) -> list[Any]:  # noqa: ANN401
    import tensorflow as tf

    signature = getattr(graph, "structured_input_signature", None)
    return list(tf.nest.flatten(signature)) if signature is not None else []


def _difference(before: list[Any], after: list[Any]) -> str:
    """Say which argument changed from one trace to the next."""
    for place, (old, new) in enumerate(zip(before, after, strict=False), start=1):
        if old == new:
            continue
        name = getattr(new, "name", None)
        words = f"argument {name}" if name else f"argument {place}"
        shapes = getattr(old, "shape", None), getattr(new, "shape", None)
        if None not in shapes and shapes[0] != shapes[1]:
            return f"{words} had the shape {shapes[0]}, then {shapes[1]}"
        kinds: list[Any] = [getattr(old, "dtype", None), getattr(new, "dtype", None)]
        if None not in kinds and kinds[0] != kinds[1]:
            return f"{words} was {kinds[0].name}, then {kinds[1].name}"
        if isinstance(new, bool | int | float | str):
            return f"{words} was the Python value {old!r}, then {new!r}"
        return f"{words} changed"
    return ""

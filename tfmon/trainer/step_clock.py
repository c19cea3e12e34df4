"""Where the time of a window's steps went: sums and a ring of step times, taken with as little as possible."""

from __future__ import annotations

import gc
import math
import time
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfmon.model.lane_events import Window
from tfmon.model.lane_statistics import BINS_PER_OCTAVE, add, quantile_ns
from tfmon.trainer.pipeline import BatchFeed, count_examples

try:
    import numpy as np
except ImportError:  # a script of the user's may train without it
    HAS_NUMPY = False
else:
    HAS_NUMPY = True

CAPACITY = 8_192
"""Steps between two counts at most."""
GC_HICCUP_NS = 5_000_000
"""A garbage collection that takes longer than this marks its window."""
KNOB_CHANGE = "knob change"
"""Mark of the window in which a knob took effect."""
TRACE, COMPILE = "trace", "long call (compile?)"
LONG_CALL_NS, LONG_CALL = 50_000_000, 10
"""A call that takes so long, and so many times the usual, without a trace: XLA compiles, or TensorFlow builds the
function anew for other devices; neither tells. It may be the machine, too."""
MOST_ODD_WINDOWS = 3
"""Windows left out for these after a knob change; more of them, and it is what this lane's steps are like."""

LEAST_REST_NS, BUDGET = 1_000_000_000, 0.01
"""A step is sampled at most once a second, and so rarely that what it costs is 1 % of the time at most."""


def rest_ns(extra_ns: float) -> int:
    """Return how long no step is sampled after one that cost so much more than a plain one."""
    return max(LEAST_REST_NS, int(extra_ns / BUDGET))


@dataclass(slots=True)
class Samples:
    """Sums over sampled steps, in nanoseconds."""

    steps: int = 0
    examples: int = 0
    input_ns: int = 0
    copy_ns: int = 0
    call_ns: int = 0
    tail_ns: int = 0


class StepClock:
    """Collects one window: the loop adds the sums and writes step times into a ring that was made beforehand.

    Units: nanoseconds of `time.monotonic_ns`.
    """

    def __init__(self) -> None:
        self.times = array("q", bytes(8 * CAPACITY))
        """Step times that are not counted into the histogram yet."""
        self.reset(time.monotonic_ns())

    def reset(self, at_ns: int) -> None:
        """Begin a window."""
        self.began_ns = at_ns
        self.steps = 0
        self.examples = 0
        self.input_ns = 0
        self.call_ns = 0
        self.sync_ns = 0
        self.report_ns = 0
        self.longest_ns = 0
        self.longest_call_ns = 0
        self.traced_steps = 0
        self.traced_ns = 0
        self.histogram: dict[int, int] = {}
        self.marks: set[str] = set()

    def count(self, steps: int) -> None:
        """Count the first `steps` times of the ring into the window's histogram."""
        if not HAS_NUMPY:
            few = self.times[:steps]
            counted = Counter(math.floor(math.log2(max(time, 1)) * BINS_PER_OCTAVE) for time in few)
            longest_ns = max(few)
        else:
            times = np.frombuffer(self.times, dtype=np.int64, count=steps)
            bins = np.floor(np.log2(np.maximum(times, 1)) * BINS_PER_OCTAVE).astype(np.int64)
            found, amounts = np.unique(bins, return_counts=True)
            counted = Counter(dict(zip(found.tolist(), amounts.tolist(), strict=True)))
            longest_ns = int(times.max())
        self.histogram = add(self.histogram, counted)
        self.longest_ns = max(self.longest_ns, longest_ns)
        self.steps += steps

    def window(self, at_ns: int, samples: Samples, **more: Any) -> Window:  # noqa: ANN401
        """Return the window as it stands; `more` are the fields that no clock knows."""
        return Window(
            at_ns=at_ns,
            span_ns=at_ns - self.began_ns,
            steps=self.steps,
            examples=self.examples,
            input_ns=self.input_ns,
            call_ns=self.call_ns,
            sync_ns=self.sync_ns,
            report_ns=self.report_ns,
            longest_ns=self.longest_ns,
            histogram=self.histogram,
            marks=tuple(sorted(self.marks)),
            traced_steps=self.traced_steps,
            traced_ns=self.traced_ns,
            sampled=samples.steps,
            sampled_examples=samples.examples,
            sampled_input_ns=samples.input_ns,
            sampled_call_ns=samples.call_ns,
            sampled_tail_ns=samples.tail_ns,
            **more,
        )


class OutlierWindows:
    """Marks windows with a trace or a call far longer than the others, unless that is what this lane does."""

    def __init__(self) -> None:
        self._marked = 0

    def mark(self, clock: StepClock) -> None:
        """Mark the window if it is odd."""
        if not clock.steps or self._marked >= MOST_ODD_WINDOWS:
            return
        usual_ns = quantile_ns(clock.histogram, 0.5) or 0.0
        if clock.traced_steps:
            clock.marks.add(TRACE)
        elif clock.longest_call_ns > max(LONG_CALL_NS, LONG_CALL * usual_ns):
            clock.marks.add(COMPILE)
        else:
            return
        self._marked += 1


class CollectorWatch:
    """Notices garbage collections that are long enough to show in a window.

    Source: `gc.callbacks`. With everything alive at the start of the race frozen, they are rare.
    """

    def __init__(self) -> None:
        self._began_ns = 0
        self.hiccup = False
        gc.callbacks.append(self._note)

    def settle(self) -> None:
        """Collect once and set aside what is alive: a full pass over TensorFlow's objects takes 0.2 s."""
        gc.collect()
        gc.freeze()
        self.hiccup = False

    def take(self) -> bool:
        """Return whether there was a hiccup since the last call."""
        hiccup, self.hiccup = self.hiccup, False
        return hiccup

    def _note(self, phase: str, _info: dict[str, Any]) -> None:
        now_ns = time.monotonic_ns()
        if phase == "start":
            self._began_ns = now_ns
        elif now_ns - self._began_ns > GC_HICCUP_NS:
            self.hiccup = True


# ---------------- single steps between two windows, with a barrier on both sides, to tell a slow device from a slow host


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

    def take(self, feed: BatchFeed, step: Callable[..., Any], period_ns: float) -> Any:  # noqa: ANN401
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

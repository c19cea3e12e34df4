"""Where the time of a window's steps went: sums and a ring of step times, taken with as little as possible."""

from __future__ import annotations

import gc
import time
from array import array
from typing import Any

import numpy as np

from tfmon.model.histogram import BINS_PER_OCTAVE, add

CAPACITY = 8_192
"""Steps between two counts at most."""
GC_HICCUP_NS = 5_000_000
"""A garbage collection that takes longer than this marks its window."""


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
        times = np.frombuffer(self.times, dtype=np.int64, count=steps)
        bins = np.floor(np.log2(np.maximum(times, 1)) * BINS_PER_OCTAVE).astype(np.int64)
        found, amounts = np.unique(bins, return_counts=True)
        self.histogram = add(self.histogram, dict(zip(found.tolist(), amounts.tolist(), strict=True)))
        self.longest_ns = max(self.longest_ns, int(times.max()))
        self.steps += steps


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

"""Measurements of a lane's steps. A script may lack NumPy and TensorFlow."""

from __future__ import annotations

import gc
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from tfmon.model.fast_dataclass import dataclass
from tfmon.model.lane_events import BINS_PER_OCTAVE, IN_A_STEP, STOPPED, histogram_of
from tfmon.system.lane_clock import lane_clock

try:
    import numpy as np
except ImportError:
    HAS_NUMPY = False
else:
    HAS_NUMPY = True

CAPACITY = 8_192
"""Maximum step times before the histogram counts them."""
LEAST_STOP_NS = 50_000_000
LONG_COLLECTION_NS = 5_000_000
"""A longer garbage collection marks its window."""
KNOB_CHANGE, GARBAGE_COLLECTION = "knob change", "garbage collection"
COMPILING = "compiling"
"""Mark of windows with a trace. A mark for long calls would select windows by speed."""
MOST_OUTLIER_WINDOWS = 3
LEAST_PAUSE_NS, SAMPLING_BUDGET, LEAST_PAUSE_STEPS = 1_000_000_000, 0.01, 20
"""Limits of sampling: interval, share of the time, and number of steps."""


class StepClock:
    """Collects a window. Step times are written into a ring that is never reallocated.

    The histogram is filled at the window's end, because CPU caches are cold between steps.

    Units: nanoseconds of `lane_clock`.
    """

    def __init__(self) -> None:
        self.times = array("q", bytes(8 * CAPACITY))
        """Step times that are not in the histogram. The caller writes new times from `kept` on."""
        self.done = 0
        self.last_end_ns = 0
        """End of the last step, or 0."""
        self.called_ns = self.waited_ns = 0
        self._owed = 0
        self._suspended_ns = 0
        self._stopped_at_end_ns: int | None = None
        self.reset(lane_clock.now_ns())

    def reset(self, at_ns: int, marks: Iterable[str] = ()) -> None:
        """Begin a window after the previous one."""
        self._left_out_ns = Counter[str]()
        self._before_ns = lane_clock.stopped_ns
        self._begin(at_ns, marks)

    def leave_out(self, until_ns: int, reason: str, marks: Iterable[str] = ()) -> None:
        """Begin a window at `until_ns`. The current steps are in no window."""
        if self.last_end_ns:
            self._left_out_ns[reason] += until_ns - self.began_ns
            self._begin(until_ns, marks)
        else:
            self.reset(until_ns, marks)
        self.last_end_ns = until_ns

    def skip(self, until_ns: int, reasons: Mapping[str, int]) -> int:
        """Leave out the time since the last step. Return the length."""
        by_ns = until_ns - self.last_end_ns
        self._left_out_ns.update(reasons)
        self.began_ns += by_ns
        self.last_end_ns = until_ns
        self._suspended_ns, self._stopped_at_end_ns = lane_clock.suspended_ns, None
        return by_ns

    def stop(self) -> None:
        """Record that no step follows. A later stop is in no window."""
        self.note_suspension()
        self._stopped_at_end_ns = lane_clock.stopped_ns

    @property
    def stopped_ns(self) -> int:
        """Total stopped time until the window's end."""
        return lane_clock.stopped_ns if self._stopped_at_end_ns is None else self._stopped_at_end_ns

    def note_suspension(self) -> None:
        """Mark the window if a step was suspended."""
        if self._stopped_at_end_ns is None and lane_clock.suspended_ns - self._suspended_ns > LEAST_STOP_NS:
            self._suspended_ns = lane_clock.suspended_ns
            self.marks.add(IN_A_STEP)

    @property
    def left_out_ns(self) -> dict[str, int]:
        """Time since the last window that this window excludes, by reason."""
        times_ns = {**self._left_out_ns, STOPPED: self.stopped_ns - self._before_ns}
        return {reason: time_ns for reason, time_ns in times_ns.items() if time_ns}

    def _begin(self, at_ns: int, marks: Iterable[str]) -> None:
        self.began_ns = at_ns
        self._suspended_ns, self._stopped_at_end_ns = lane_clock.suspended_ns, None
        self.steps = 0
        self.kept = self.added = 0
        """Step times outside the histogram: counted, and added."""
        self.examples = 0
        self.input_ns = 0
        self.call_ns = 0
        self.sync_ns = 0
        self.report_ns = 0
        self.traced_steps = 0
        self.traced_ns = 0
        self.marks = set(marks)
        self._histogram: Counter[int] = Counter()
        self._longest_ns = 0

    def add(self, times_ns: list[int], end_ns: int, examples: int, input_ns: int, call_ns: int) -> None:
        """Add steps that ended at `end_ns`. Call `count_added` to count them."""
        paid = min(self._owed, examples)
        self._owed -= paid
        self.examples += examples - paid
        self.input_ns += input_ns
        self.call_ns += call_ns
        self.called_ns += call_ns
        self.waited_ns += input_ns
        written = self.kept + self.added
        kept = array("q", times_ns[: CAPACITY - written])
        self.times[written : written + len(kept)] = kept
        self.added += len(kept)
        self.done += len(times_ns)
        self.last_end_ns = end_ns

    def count_added(self, missed: int) -> None:
        """Count the added steps, and `missed` more."""
        seen, self.added = self.added, 0
        self.done += missed
        if missed and seen:
            written, steps = self.kept, max(0, min(seen + missed, self.room))
            each_ns = sum(self.times[written : written + seen]) // max(1, steps)
            self.times[written : written + steps] = array("q", [each_ns] * steps)
            seen = steps
        self.count(seen)

    def count_wait(self, began_ns: int, until_ns: int) -> int:
        """Make the added steps end at `until_ns` with equal lengths. Return the length."""
        written, each_ns = self.kept, (until_ns - began_ns) // self.added
        self.times[written : written + self.added] = array("q", [each_ns] * self.added)
        self.call_ns += until_ns - self.last_end_ns
        self.last_end_ns = until_ns
        return each_ns

    def take_back(self, steps: int, examples: int) -> None:
        """Count fewer steps, because they were parts of other steps."""
        self.done -= steps
        self._owed += examples

    def count(self, steps: int) -> None:
        """Count steps whose times were written."""
        self.steps += steps
        self.kept += steps
        if self.kept >= CAPACITY // 2:
            self._count_kept()

    @property
    def room(self) -> int:
        """Number of free entries for step times."""
        return CAPACITY - self.kept - self.added

    @property
    def histogram(self) -> dict[int, int]:
        """Steps by duration, as in `Window`."""
        self._count_kept()
        return dict(self._histogram)

    @property
    def longest_ns(self) -> int:
        """The window's longest step."""
        self._count_kept()
        return self._longest_ns

    def _count_kept(self) -> None:
        if not self.kept:
            return
        times, self.kept = self.times[: self.kept], 0
        self._longest_ns = max(self._longest_ns, max(times))  # noqa: PLW3301 - no copy
        if HAS_NUMPY:
            logarithms = np.log2(np.maximum(np.frombuffer(times, dtype=np.int64), 1)) * BINS_PER_OCTAVE
            self._histogram.update(np.floor(logarithms).astype(np.int64).tolist())
        else:
            self._histogram.update(histogram_of(times))


@dataclass(slots=True)
class Samples:
    """Sums over sampled steps, in ns. `examples` includes all steps in no window."""

    steps: int = 0
    examples: int = 0
    input_ns: int = 0
    copy_ns: int = 0
    call_ns: int = 0
    tail_ns: int = 0


class Sampler:
    """Decides when a step runs between barriers. Thread: the training thread."""

    def __init__(self, *, drop_first: bool = False) -> None:
        """`drop_first` drops a sample after each change."""
        self.sums = Samples()
        self._due_ns = 0
        self._drop_first = self._drops = drop_first

    def due(self, now_ns: int) -> bool:
        """Return whether a sample is due."""
        return now_ns >= self._due_ns

    def expect_change(self) -> None:
        """Drop the next sample. The first call with a batch on the device takes 50 to 95 ms more."""
        self._drops, self._due_ns = self._drop_first, 0

    def add(self, sample: Samples, ended_ns: int, extra_ns: float) -> None:
        """Add a sampled step, which took `extra_ns` longer."""
        sums = self.sums
        sums.examples += sample.examples
        if self._drops:
            self._drops, self._due_ns = False, 0
            return
        step_ns = sample.input_ns + sample.copy_ns + sample.call_ns + sample.tail_ns
        self._due_ns = ended_ns + max(LEAST_PAUSE_NS, int(extra_ns / SAMPLING_BUDGET), LEAST_PAUSE_STEPS * step_ns)
        sums.steps += sample.steps
        sums.input_ns += sample.input_ns
        sums.copy_ns += sample.copy_ns
        sums.call_ns += sample.call_ns
        sums.tail_ns += sample.tail_ns


class CollectorWatch:
    """Detects long garbage collections. Live objects are frozen."""

    def __init__(self) -> None:
        self._began_ns = 0
        self._long = False
        gc.callbacks.append(self._collected)

    def settle(self) -> None:
        """Collect and freeze, because a full pass over TensorFlow's objects takes 0.2 s."""
        gc.collect()
        gc.freeze()
        self._long = False

    def take(self) -> bool:
        """Return whether a collection was long since the last call."""
        long, self._long = self._long, False
        return long

    def _collected(self, phase: str, _info: dict[str, Any]) -> None:
        now_ns = lane_clock.now_ns()
        if phase == "start":
            self._began_ns = now_ns
        elif now_ns - self._began_ns > LONG_COLLECTION_NS:
            self._long = True

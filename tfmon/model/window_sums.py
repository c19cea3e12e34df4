"""Sums over windows: histograms of step times, means of samples, and the chart history. Pure.

The charts have some figures for each second and each five seconds of the last half hour, summed as windows arrive,
so that memory is bounded and a replay fills the same history.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tfmon.model.lane_events import Window
from tfmon.model.readings import Missing, Reading

Key = TypeVar("Key")
_SUMS = (
    "windows", "steps", "examples", "span_ns", "input_ns", "call_ns", "sync_ns", "report_ns", "traced_steps",
    "traced_ns", "sampled", "sampled_input_ns", "sampled_call_ns", "sampled_tail_ns",
)  # fmt: skip
_sums_of: Callable[[Window | WindowSums], tuple[int, ...]] = operator.attrgetter(*_SUMS)


BINS_PER_OCTAVE = 64
"""Bins grow geometrically and are the same for every histogram, so that histograms can be added."""


def bin_of(duration_ns: float) -> int:
    """Return the bin of a duration; everything up to 1 ns is in bin 0."""
    return math.floor(math.log2(max(duration_ns, 1.0)) * BINS_PER_OCTAVE)


def middle_ns(bin_index: int) -> float:
    """Return the geometric middle of a bin, in nanoseconds."""
    return float(2.0 ** ((bin_index + 0.5) / BINS_PER_OCTAVE))


def count(durations_ns: Iterable[float]) -> dict[int, int]:
    """Count durations into bins."""
    bins: dict[int, int] = {}
    for duration_ns in durations_ns:
        index = bin_of(duration_ns)
        bins[index] = bins.get(index, 0) + 1
    return bins


def add(left: Mapping[Key, int], right: Mapping[Key, int], sign: int = 1) -> dict[Key, int]:
    """Return the sums of both by key; with sign -1, `left` without `right`."""
    total = dict(left)
    for index, amount in right.items():
        total[index] = total.get(index, 0) + sign * amount
    return total if all(total.values()) else {index: amount for index, amount in total.items() if amount}


def quantile_ns(bins: Mapping[int, int], fraction: float) -> float | None:
    """Return the duration below which `fraction` of the counts lie, or `None` for an empty histogram.

    Units: nanoseconds, to within 0.55 %. Uses the nearest-rank definition.
    """
    rank = max(1, math.ceil(fraction * sum(bins.values())))
    seen = 0
    for index in sorted(bins):
        seen += bins[index]
        if seen >= rank:
            return middle_ns(index)
    return None


def joined(before: Window, after: Window) -> Window:
    """Return two windows of a lane as one, with summed figures."""
    copied_ns = [one.sampled_copy_ns for one in (before, after) if one.sampled_copy_ns is not None]
    peaks = [one.gpu_memory_peak_bytes for one in (before, after) if one.gpu_memory_peak_bytes is not None]
    share = before.computing_share if after.computing_share is None else after.computing_share
    return replace(
        after,
        longest_ns=max(before.longest_ns, after.longest_ns),
        histogram=add(before.histogram, after.histogram),
        loss=before.loss if after.loss is None else after.loss,
        gpu_memory_peak_bytes=max(peaks, default=None),
        traced=after.traced or before.traced,
        computing_share=share,
        sampled_examples=before.sampled_examples + after.sampled_examples,
        sampled_copy_ns=sum(copied_ns) if copied_ns else None,
        left_out_ns=add(before.left_out_ns, after.left_out_ns),
        **{name: getattr(before, name) + getattr(after, name) for name in _SUMS},
    )


@dataclass(frozen=True, slots=True)
class WindowSums:
    """Sums over windows; `lane_events.Window` describes the fields."""

    windows: int = 0
    steps: int = 0
    examples: int = 0
    span_ns: int = 0
    input_ns: int = 0
    call_ns: int = 0
    sync_ns: int = 0
    report_ns: int = 0
    traced_steps: int = 0
    traced_ns: int = 0
    sampled: int = 0
    sampled_input_ns: int = 0
    sampled_copy_ns: int | None = None
    sampled_call_ns: int = 0
    sampled_tail_ns: int = 0
    histogram: dict[int, int] = field(default_factory=dict)

    def plus(self, more: Window | WindowSums, sign: int = 1) -> WindowSums:
        """Return the sums with another window or sums; with sign -1, without it."""
        copied_ns = self.sampled_copy_ns
        if more.sampled_copy_ns is not None:
            copied_ns = (copied_ns or 0) + sign * more.sampled_copy_ns
        sums = map(operator.add if sign > 0 else operator.sub, _sums_of(self), _sums_of(more))
        return WindowSums(
            sampled_copy_ns=copied_ns,
            histogram=add(self.histogram, more.histogram, sign),
            **dict(zip(_SUMS, sums, strict=True)),
        )

    @property
    def examples_per_s(self) -> float | None:
        """Examples over the wall time of the windows. `None` before the first or without examples."""
        return self.examples / self.span_ns * 1e9 if self.span_ns and (self.examples or not self.steps) else None

    @property
    def steps_per_s(self) -> float | None:
        """Steps over the wall time of the windows. `None` before the first."""
        return self.steps / self.span_ns * 1e9 if self.span_ns else None

    def step_ms(self, fraction: float) -> float | None:
        """Return a quantile of the time from step end to step end, in milliseconds, to within 0.55 %."""
        quantile = quantile_ns(self.histogram, fraction)
        return None if quantile is None else quantile / 1e6


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of samples taken at even intervals."""

    total: float = 0.0
    samples: int = 0

    def plus(self, reading: Reading) -> Mean:
        """Return the mean with one more sample; a missing value changes nothing."""
        return self if isinstance(reading, Missing) else Mean(self.total + reading, self.samples + 1)

    def joined(self, other: Mean) -> Mean:
        """Return the mean of the samples of both."""
        return Mean(self.total + other.total, self.samples + other.samples)

    @property
    def value(self) -> float | None:
        """Return the mean. `None` before the first sample."""
        return self.total / self.samples if self.samples else None


FINE_NS = 1_000_000_000
COARSE_NS = 5 * FINE_NS
MOST_FINE = 301
"""Five minutes, and the incomplete second at their beginning."""
MOST_COARSE = 361
"""Thirty minutes, likewise."""
NEVER_NS = 1 - 2**63
"""Before any event, also of a machine whose clock started later."""
NO_SAMPLE = Missing("not sampled")


@dataclass(frozen=True, slots=True)
class Stretch:
    """The windows and samples of one second, or of five; immutable."""

    start_ns: int
    length_ns: int
    since_ns: int = 0
    """Start of the first window that ended in the stretch; can be before `start_ns`."""
    until_ns: int = 0
    """End of the last one. 0 without windows."""
    in_slice: bool = False
    """Whether the first one lies in a slice: another lane trained in the gap before it."""
    examples_per_s: float | None = None
    """Over the wall time of all windows, even discarded ones. `None` without examples."""
    p50_ms: float | None = None
    """Quantiles of the time from step end to step end, to within 0.55 %."""
    p95_ms: float | None = None
    input_pct: float | None = None
    """Waiting for the next batch, in percent of the windows' time."""
    loss: float | None = None
    cpu_pct: float | None = None
    """Means of the samples, as in `LaneState`. `None` without samples."""
    private_bytes: float | None = None
    gpu_busy_pct: float | None = None


@dataclass(frozen=True, slots=True)
class _Sums:
    """The stretch under way."""

    start_ns: int = NEVER_NS
    since_ns: int = 0
    until_ns: int = 0
    in_slice: bool = False
    windows: WindowSums = field(default_factory=WindowSums)
    loss: float | None = None
    cpu_pct: Mean = field(default_factory=Mean)
    private_bytes: Mean = field(default_factory=Mean)
    gpu_busy_pct: Mean = field(default_factory=Mean)

    def with_window(self, window: Window) -> _Sums:
        first = not self.until_ns
        return replace(
            self,
            since_ns=window.at_ns - window.span_ns if first else self.since_ns,
            until_ns=window.at_ns,
            in_slice=window.round is not None if first else self.in_slice,
            windows=self.windows.plus(window),
            loss=self.loss if window.loss is None else window.loss,
        )

    def joined(self, later: _Sums) -> _Sums:
        first = not self.until_ns
        return _Sums(
            start_ns=self.start_ns,
            since_ns=later.since_ns if first else self.since_ns,
            until_ns=later.until_ns or self.until_ns,
            in_slice=later.in_slice if first else self.in_slice,
            windows=self.windows.plus(later.windows),
            loss=self.loss if later.loss is None else later.loss,
            cpu_pct=self.cpu_pct.joined(later.cpu_pct),
            private_bytes=self.private_bytes.joined(later.private_bytes),
            gpu_busy_pct=self.gpu_busy_pct.joined(later.gpu_busy_pct),
        )

    def stretch(self, length_ns: int) -> Stretch:
        sums = self.windows
        return Stretch(
            start_ns=self.start_ns,
            length_ns=length_ns,
            since_ns=self.since_ns,
            until_ns=self.until_ns,
            in_slice=self.in_slice,
            examples_per_s=sums.examples_per_s,
            p50_ms=sums.step_ms(0.5),
            p95_ms=sums.step_ms(0.95),
            input_pct=100 * sums.input_ns / sums.span_ns if sums.span_ns else None,
            loss=self.loss,
            cpu_pct=self.cpu_pct.value,
            private_bytes=self.private_bytes.value,
            gpu_busy_pct=self.gpu_busy_pct.value,
        )


@dataclass(frozen=True, slots=True)
class History:
    """The last half hour of a lane, without empty stretches."""

    fine: tuple[Stretch, ...] = ()
    """Finished seconds, oldest first."""
    coarse: tuple[Stretch, ...] = ()
    """Finished stretches of five seconds, oldest first; the last one can reach into `fine`."""
    second: _Sums = field(default_factory=_Sums)
    five: _Sums = field(default_factory=_Sums)
    """The finished seconds of the five seconds under way."""
    kept: bool = True
    """Whether to keep the chart history."""

    def with_window(self, window: Window) -> History:
        """Return the history with one more window, which counts at its end."""
        if not self.kept:
            return self
        now = self._at(window.at_ns)
        return replace(now, second=now.second.with_window(window))

    def with_sample(
        self,
        at_ns: int,
        cpu_pct: Reading = NO_SAMPLE,
        private_bytes: Reading = NO_SAMPLE,
        gpu_busy_pct: Reading = NO_SAMPLE,
    ) -> History:
        """Return the history with a sample of the lane's processes or of its GPU."""
        if not self.kept:
            return self
        now = self._at(at_ns)
        second = replace(
            now.second,
            cpu_pct=now.second.cpu_pct.plus(cpu_pct),
            private_bytes=now.second.private_bytes.plus(private_bytes),
            gpu_busy_pct=now.second.gpu_busy_pct.plus(gpu_busy_pct),
        )
        return replace(now, second=second)

    def _at(self, at_ns: int) -> History:
        """Return the history with the second of that moment under way; late events count for the latest."""
        start_ns = at_ns // FINE_NS * FINE_NS
        if start_ns <= self.second.start_ns:
            return self
        new = _Sums(start_ns)
        if self.second.start_ns == NEVER_NS:
            return replace(self, second=new)
        fine = (*self.fine[1 - MOST_FINE :], self.second.stretch(FINE_NS))
        coarse, five = self.coarse, self.five
        since_ns = self.second.start_ns // COARSE_NS * COARSE_NS
        if since_ns > five.start_ns:
            if five.start_ns > NEVER_NS:
                coarse = (*coarse[1 - MOST_COARSE :], five.stretch(COARSE_NS))
            five = replace(self.second, start_ns=since_ns)
        else:
            five = five.joined(self.second)
        return History(fine, coarse, new, five)

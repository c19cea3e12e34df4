"""The windows of a lane, and running sums."""

from __future__ import annotations

import math
import operator
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, fields, replace
from operator import attrgetter
from typing import Any, TypeVar

from tfmon.model.fast_dataclass import dataclass
from tfmon.model.lane_events import SLICE_START, STOPPED, SliceEnded, Window, quantile_ns
from tfmon.model.readings import Missing, Reading, SliceLoad

MOST_RECENT, RECENT_NS = 1_500, 600_000_000_000
"""Limits for unmerged windows."""
OLD_NS = 2_000_000_000
"""Old windows are merged over this time, or 1 / `OLD_SHARE` of their age."""
OLD_SHARE, MOST_OLD = 400, 4_096
SHORTEST_STRETCH_NS = 1_000_000_000
MOST_SLICES = 2_000
RARE = 0.5
"""Above this share of disturbed windows, nothing is discarded."""
SETTLED_WINDOWS = 20


Key = TypeVar("Key")


class StatePart:
    """A mutable part of the state, see `lane_state.copied`."""


def add(left: Mapping[Key, int], right: Mapping[Key, int], sign: int = 1) -> dict[Key, int]:
    """Return the sums by key, or the differences."""
    total = dict(left)
    for index, amount in right.items():
        total[index] = total.get(index, 0) + sign * amount
    return total if all(total.values()) else {index: amount for index, amount in total.items() if amount}


def quantile_ms(bins: Mapping[int, int], fraction: float) -> float | None:
    """Return a quantile in milliseconds."""
    duration_ns = quantile_ns(bins, fraction)
    return None if duration_ns is None else duration_ns / 1e6


@dataclass(frozen=True, slots=True)
class WindowSums:
    """Sums over windows; see `lane_events.Window`."""

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
    sampled_call_ns: int = 0
    sampled_tail_ns: int = 0
    sampled_copy_ns: int | None = None
    histogram: dict[int, int] = field(default_factory=dict)

    def added(self, more: WindowSums, sign: int = 1) -> WindowSums:
        """Return the sums with or without more windows."""
        copied_ns = self.sampled_copy_ns
        if more.sampled_copy_ns is not None:
            copied_ns = (copied_ns or 0) + sign * more.sampled_copy_ns
        sums = map(operator.add if sign > 0 else operator.sub, _sums_of(self), _sums_of(more))
        return WindowSums(
            **dict(zip(_SUMS, sums, strict=True)),
            sampled_copy_ns=copied_ns,
            histogram=add(self.histogram, more.histogram, sign),
        )

    @property
    def examples_per_s(self) -> float | None:
        """Throughput, or `None` without time or examples."""
        return self.examples / self.span_ns * 1e9 if self.span_ns and (self.examples or not self.steps) else None

    @property
    def steps_per_s(self) -> float | None:
        """Steps over wall time."""
        return self.steps / self.span_ns * 1e9 if self.span_ns else None

    @property
    def input_pct(self) -> float | None:
        """Share of waiting for the next batch."""
        return 100 * self.input_ns / self.span_ns if self.span_ns else None

    def step_ms(self, fraction: float) -> float | None:
        """Return a quantile of the step times."""
        return quantile_ms(self.histogram, fraction)


_SUMS = tuple(field_.name for field_ in fields(WindowSums) if field_.default == 0)
_sums_of: Callable[[Window | WindowSums], tuple[int, ...]] = attrgetter(*_SUMS)


def sums_of(windows: Iterable[WindowSums]) -> WindowSums:
    """Return the sums over windows, without a histogram."""
    columns = zip(*map(_sums_of, windows), strict=True)
    return WindowSums(**dict(zip(_SUMS, map(sum, columns), strict=False)), sampled_copy_ns=None, histogram={})


_COPIED = (*_SUMS, "sampled_copy_ns", "histogram", "at_ns", "marks", "round", "loss")
_copied_of: Callable[[Window], tuple[Any, ...]] = attrgetter(*_COPIED)


@dataclass(frozen=True, slots=True)
class LaneWindow(WindowSums):
    """A window, or merged old windows without a histogram."""

    since_ns: int = 0
    at_ns: int = 0
    marks: tuple[str, ...] = ()
    round: int | None = None
    process: int = 0
    period: int = 0
    loss: float | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None

    @classmethod
    def from_event(cls, window: Window, process: int, period: int) -> LaneWindow:
        """Return the window of an event."""
        return cls(
            **dict(zip(_COPIED, _copied_of(window), strict=True)),
            since_ns=window.at_ns - window.span_ns,
            process=process,
            period=period,
            p50_ms=quantile_ms(window.histogram, 0.5),
            p95_ms=quantile_ms(window.histogram, 0.95),
        )

    @property
    def steady(self) -> bool:
        """Whether the window counts."""
        return not self.marks

    @property
    def reason(self) -> str:
        """Text about why the window is discarded."""
        return "; ".join(self.marks)

    @property
    def in_slice(self) -> bool:
        """Whether the window is in a slice."""
        return self.round is not None

    @property
    def kind(self) -> object:
        """Key of windows that can be merged."""
        marks = tuple(mark for mark in self.marks if mark != SLICE_START)
        return marks, self.in_slice, self.process, self.period

    @classmethod
    def merged(cls, items: Sequence[LaneWindow]) -> LaneWindow:
        """Merge consecutive windows with the same marks into one."""
        last, sums = items[-1], WindowSums()
        for item in items:
            sums = sums.added(item)
        exact = sum(sums.histogram.values()) >= sums.steps
        losses = [item.loss for item in items if item.loss is not None]
        quantiles = [sums.step_ms(fraction) if exact else None for fraction in (0.5, 0.95)]
        return replace(
            last,
            **dict(zip(_SUMS, _sums_of(sums), strict=True)),
            sampled_copy_ns=sums.sampled_copy_ns,
            histogram={},
            since_ns=items[0].since_ns,
            marks=min((item.marks for item in items), key=len),
            loss=losses[-1] if losses else None,
            p50_ms=last.p50_ms if len(items) == 1 else quantiles[0],
            p95_ms=last.p95_ms if len(items) == 1 else quantiles[1],
        )


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of samples taken at even intervals."""

    total: float = 0.0
    samples: int = 0

    def with_sample(self, reading: Reading) -> Mean:
        """Return the mean with another sample."""
        return self if isinstance(reading, Missing) else Mean(self.total + reading, self.samples + 1)

    @property
    def value(self) -> float | None:
        """The mean."""
        return self.total / self.samples if self.samples else None


@dataclass(frozen=True, slots=True)
class LaneSample:
    """A sample, or the means of several samples."""

    at_ns: int
    cpu_pct: Mean = Mean()
    private_bytes: Mean = Mean()
    gpu_busy_pct: Mean = Mean()

    @property
    def since_ns(self) -> int:
        """The time of the sample."""
        return self.at_ns

    @property
    def kind(self) -> object:
        """Common key: all samples can be merged."""
        return None

    @classmethod
    def merged(cls, items: Sequence[LaneSample]) -> LaneSample:
        """Return the means of samples."""
        return cls(
            items[-1].at_ns,
            _mean(item.cpu_pct for item in items),
            _mean(item.private_bytes for item in items),
            _mean(item.gpu_busy_pct for item in items),
        )


def _mean(means: Iterable[Mean]) -> Mean:
    parts = tuple(means)
    return Mean(sum(part.total for part in parts), sum(part.samples for part in parts))


Item = TypeVar("Item", LaneWindow, LaneSample)


def _aged(recent: tuple[Item, ...], old: tuple[Item, ...]) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    first, now_ns = recent[0], recent[-1].at_ns
    if len(recent) <= MOST_RECENT and first.at_ns >= now_ns - RECENT_NS:
        return recent, old
    number = first.at_ns // OLD_NS
    moved = next(
        (index for index, window in enumerate(recent) if window.at_ns // OLD_NS != number), len(recent) // 2
    )
    old += tuple(_merged(recent[:moved]))
    if len(old) > MOST_OLD:
        old = shortened(old, now_ns)
    return recent[moved:], old


def shortened(old: tuple[Item, ...], now_ns: int) -> tuple[Item, ...]:
    """Return the items merged by age."""
    share = OLD_SHARE
    while share and len(old) > 0.8 * MOST_OLD:
        old, share = _joined(old, now_ns, share), share // 2
    return old[-MOST_OLD:]


def _joined(old: tuple[Item, ...], now_ns: int, share: int) -> tuple[Item, ...]:
    result: list[Item] = []
    together: list[Item] = []
    for window in old:
        longest_ns = max(OLD_NS, (now_ns - window.at_ns) // share)
        if together and window.at_ns - together[0].since_ns > longest_ns:
            result += _merged(together)
            together = []
        together.append(window)
    return tuple(result + _merged(together))


def _merged(items: Sequence[Item]) -> list[Item]:
    kinds: dict[object, list[Item]] = {}
    for item in items:
        kinds.setdefault(item.kind, []).append(item)
    return [type(same[0]).merged(same) for same in kinds.values()]


@dataclass(frozen=True, slots=True)
class SliceSpeed:
    """The steady part of a slice."""

    round: int
    at_ns: int
    examples: int
    span_ns: int
    process: int = 0
    load: SliceLoad | None = None
    """`None` for an unfinished slice."""

    @property
    def examples_per_s(self) -> float:
        """Examples over wall time."""
        return self.examples / self.span_ns * 1e9

    @property
    def log(self) -> float:
        """Logarithm of `examples_per_s`, for a slice with examples."""
        return math.log(self.examples / self.span_ns * 1e9)

    def added(self, window: LaneWindow, sign: int = 1) -> SliceSpeed:
        """Return the slice with or without a window."""
        examples, span_ns = self.examples + sign * window.examples, self.span_ns + sign * window.span_ns
        at_ns = window.at_ns if sign > 0 else self.at_ns
        return SliceSpeed(self.round, at_ns, examples, span_ns, self.process, self.load)


@dataclass
class Measurements(StatePart):
    """The measurements of a lane."""

    recent: tuple[LaneWindow, ...] = ()
    """Windows of the present process, oldest first."""
    old: tuple[LaneWindow, ...] = ()
    samples: tuple[LaneSample, ...] = ()
    old_samples: tuple[LaneSample, ...] = ()
    steady: WindowSums = field(default_factory=WindowSums)
    slices: tuple[SliceSpeed, ...] = ()
    period: int = 0
    discarded: dict[str, int] = field(default_factory=dict)
    """Number of windows under each of their reasons."""
    discarded_ns: dict[str, int] = field(default_factory=dict)
    """Time by main reason, with time in no window."""
    windows: int = 0
    span_ns: int = 0
    process: int = 0
    """Process of the last window. 0 after `Hello`."""
    until_ns: int | None = None
    unaccounted_ns: int = 0
    """Time in no window or two. 0 unless tfmon has a bug."""
    constant: tuple[str, ...] = ()

    def add(self, event: Window, process: int = 0) -> None:
        """Add a window."""
        window = LaneWindow.from_event(event, process, self.period)
        if window.marks:
            self.discarded = add(self.discarded, dict.fromkeys(window.marks, window.windows))
            main_reason = min(window.marks, key=lambda mark: (mark == SLICE_START, mark))
            self.discarded_ns = add(self.discarded_ns, {main_reason: window.span_ns})
        else:
            self.steady = self.steady.added(window)
            self._add_to_slice(window)
        if self.until_ns is not None and process == self.process:
            self.unaccounted_ns += abs(event.since_ns - self.until_ns)
        self.discarded_ns = add(self.discarded_ns, event.left_out_ns)
        self.windows += window.windows
        self.span_ns += event.at_ns - event.since_ns
        self.process = process
        self.until_ns = window.at_ns
        self.recent, self.old = _aged((*self.recent, window), self.old)

    def _add_to_slice(self, window: LaneWindow) -> None:
        if window.round is not None:
            goes_on = bool(self.slices) and self.slices[-1].round == window.round
            part = self.slices[-1] if goes_on else SliceSpeed(window.round, 0, 0, 0, window.process)
            before = self.slices[:-1] if goes_on else self.slices[1 - MOST_SLICES :]
            self.slices = (*before, part.added(window))

    def sample(self, at_ns: int, **readings: Reading) -> None:
        """Add a sample, for the charts."""
        means = {name: Mean().with_sample(reading) for name, reading in readings.items()}
        self.samples, self.old_samples = _aged((*self.samples, LaneSample(at_ns, **means)), self.old_samples)

    def begin_process(self) -> None:
        """Move the present windows to the old windows."""
        self.old = (*self.old, *(replace(window, histogram={}) for window in self.recent))[-MOST_OLD:]
        self.recent = ()

    def end_slice(self, ended: SliceEnded) -> None:
        """Store the CPU use of a slice."""
        if ended.load is not None and self.slices and self.slices[-1].round == ended.round:
            self.slices = (*self.slices[:-1], replace(self.slices[-1], load=ended.load))

    def discard(self, since_ns: int, until_ns: int, reason: str) -> bool:
        """Discard past windows in a disturbance; return whether there are any.

        Disturbances that last most of the time are only added to `constant`.
        """

        def is_hit(window: LaneWindow) -> bool:
            return window.steady and window.period == self.period and window.since_ns < until_ns

        first = bisect_right(self.recent, since_ns, key=attrgetter("at_ns"))
        tail = self.recent[first:]
        hit = [window for window in tail if is_hit(window)]
        if not hit:
            return False
        share = (self.discarded.get(reason, 0) + len(hit)) / self.windows
        if reason in self.constant or (self.windows >= SETTLED_WINDOWS and share > RARE):
            self.constant = tuple(sorted({*self.constant, reason}))
            return True
        for window in hit:
            self.steady = self.steady.added(window, -1)
            left = (part.added(window, -1) if part.round == window.round else part for part in self.slices)
            self.slices = tuple(part for part in left if part.span_ns > 0)
        marked = (replace(window, marks=(reason,)) if is_hit(window) else window for window in tail)
        self.recent = (*self.recent[:first], *marked)
        self.discarded = add(self.discarded, {reason: sum(window.windows for window in hit)})
        self.discarded_ns = add(self.discarded_ns, {reason: sum(window.span_ns for window in hit)})
        return True

    def restart(self) -> None:
        """Begin a new steady state."""
        self.steady, self.slices, self.period = WindowSums(), (), self.period + 1

    def stretches(self, length_ns: int) -> dict[int, SliceSpeed]:
        """Return the sums of steady windows by stretch."""
        result: dict[int, SliceSpeed] = {}
        for window in self.steady_points:
            number = window.at_ns // length_ns
            result[number] = result.get(number, SliceSpeed(number, 0, 0, 0)).added(window)
        return {number: part for number, part in result.items() if part.examples > 0 and part.span_ns > 0}

    @property
    def ran_ns(self) -> int:
        """Measured time without suspensions and pauses."""
        return self.span_ns - self.discarded_ns.get(STOPPED, 0)

    @property
    def steady_points(self) -> list[LaneWindow]:
        """The recent windows of steady state."""
        return [window for window in self.recent if window.steady and window.period == self.period]


def concurrent_slices(lanes: Sequence[Measurements]) -> tuple[int, list[tuple[SliceSpeed, ...]]]:
    """Return the length of a stretch, and each lane's sums in each stretch in which all trained.

    The lanes' shares of the cores change from second to second, so only the same seconds are compared. Lanes with
    long steps report rarely, so a stretch has at least two windows.
    """
    longest_ns = max((window.span_ns for lane in lanes for window in lane.steady_points), default=0)
    length_ns = max(SHORTEST_STRETCH_NS, 2 * longest_ns)
    sums = [lane.stretches(length_ns) for lane in lanes]
    common = sorted(set.intersection(*map(set, sums))) if sums else []
    return length_ns, [tuple(sum_[number] for number in common) for sum_ in sums]

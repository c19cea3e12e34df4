"""What is kept of a lane's windows and samples: sums, means, slices, histograms, and what is discarded and why."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tfmon.model.knobs import KnobValue, Settings
from tfmon.model.lane_events import SliceEnded, SliceLoad, Window
from tfmon.model.readings import Missing, Reading
from tfmon.model.records import replace

SLICE_START = "after a switch"
"""Mark of the windows at the start of a slice, when the machine has just switched to the lane."""
MOST_SLICES = 2_000
"""Slices kept under the settings in effect."""
MOST_EARLIER = 96
"""Settings whose slices are kept after a knob was changed."""
LATEST = 24
"""Windows that a late reading may still discard; at five a second these are five seconds."""
RARE = 0.5
"""A disturbance that hits a larger share of the windows is how this machine is: nothing is discarded for it."""
SETTLED_WINDOWS = 20
"""That share is known from so many windows on."""

_SUMS = (
    "steps", "examples", "span_ns", "input_ns", "call_ns", "sync_ns", "report_ns", "traced_steps", "traced_ns",
    "sampled", "sampled_input_ns", "sampled_call_ns", "sampled_tail_ns",
)  # fmt: skip


# ---------------- histograms of durations: bins grow geometrically, so that windows can be added up


BINS_PER_OCTAVE = 64


def bin_of(duration_ns: float) -> int:
    """Return the bin that holds a duration; everything up to 1 ns lies in bin 0."""
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


def add(left: Mapping[int, int], right: Mapping[int, int], sign: int = 1) -> dict[int, int]:
    """Return the histogram of both sets of durations; with sign -1, of the left ones without the right ones."""
    total = dict(left)
    for index, amount in right.items():
        total[index] = total.get(index, 0) + sign * amount
    return {index: amount for index, amount in total.items() if amount}


def quantile_ns(bins: Mapping[int, int], fraction: float) -> float | None:
    """Return the duration below which `fraction` of the counts lie, or None for an empty histogram.

    Units: nanoseconds, to within 0.55 %. Uses the nearest-rank definition.
    """
    rank = max(1, math.ceil(fraction * sum(bins.values())))
    seen = 0
    for index in sorted(bins):
        seen += bins[index]
        if seen >= rank:
            return middle_ns(index)
    return None


def without_stop(window: Window, stopped_ns: int) -> Window:
    """Return a window without a time in which the lane was suspended in the middle of its longest step."""
    longest_ns = max(1, window.longest_ns - stopped_ns)
    bins = add(window.histogram, {bin_of(window.longest_ns): 1}, -1)
    return replace(
        window,
        span_ns=window.span_ns - stopped_ns,
        call_ns=window.call_ns - stopped_ns,
        longest_ns=longest_ns,
        histogram=add(bins, {bin_of(longest_ns): 1}),
    )


# ---------------- sums and points


@dataclass(frozen=True, slots=True)
class WindowSums:
    """Sums over steady windows, those without a mark; `lane_events.Window` says what each field means."""

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

    def plus(self, window: Window, sign: int = 1) -> WindowSums:
        """Return the sums with one more window; with sign -1, without a window that is in them."""
        copied_ns = self.sampled_copy_ns
        if window.sampled_copy_ns is not None:
            copied_ns = (copied_ns or 0) + sign * window.sampled_copy_ns
        return WindowSums(
            windows=self.windows + sign,
            sampled_copy_ns=copied_ns,
            histogram=add(self.histogram, window.histogram, sign),
            **{name: getattr(self, name) + sign * getattr(window, name) for name in _SUMS},
        )

    @property
    def examples_per_s(self) -> float | None:
        """Examples over the wall time of the windows; None before the first or without examples."""
        return self.examples / self.span_ns * 1e9 if self.span_ns and (self.examples or not self.steps) else None

    @property
    def steps_per_s(self) -> float | None:
        """Steps over the wall time of the windows; None before the first."""
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
        """Return the mean with one more sample; one without a value changes nothing."""
        return self if isinstance(reading, Missing) else Mean(self.total + reading, self.samples + 1)

    @property
    def value(self) -> float | None:
        """The mean, None before the first sample."""
        return self.total / self.samples if self.samples else None


@dataclass(frozen=True, slots=True)
class Point:
    """One window in the history of a lane's throughput."""

    at_ns: int
    """End of the window."""
    span_ns: int
    examples: int
    steps: int
    steady: bool
    in_slice: bool = False
    """True for a window of a slice: another lane trained in the gap before it."""
    others: bool = False
    """True for a window in which others took a share of the lane's GPU; it counts all the same."""


@dataclass(frozen=True, slots=True)
class KnobMark:
    """A change of a knob, for the charts."""

    at_ns: int
    text: str
    """Such as "prefetch auto"."""
    gap_ns: int


@dataclass(frozen=True, slots=True)
class SliceSpeed:
    """What a lane did in the steady part of one slice, and what else used the CPU in all of the slice."""

    round: int
    at_ns: int
    examples: int
    span_ns: int
    process: int = 0
    """Which process of the lane ran it: 1 for the first of the race, one more for each that replaced it."""
    load: SliceLoad | None = None
    """Who used the CPU; None before the slice has ended, and for a slice that was broken off."""

    @property
    def examples_per_s(self) -> float:
        """Examples over wall time."""
        return self.examples / self.span_ns * 1e9


@dataclass(frozen=True, slots=True)
class EarlierSlices:
    """Slices that ran under settings which a knob has changed since."""

    settings: dict[str, KnobValue]
    slices: tuple[SliceSpeed, ...]


# ---------------- all measurements of one lane


@dataclass(frozen=True, slots=True)
class Measurements:
    """What was measured of one lane.

    A new steady state begins when a knob or the mode changes; earlier slices are kept under their settings.
    """

    steady: WindowSums = field(default_factory=WindowSums)
    """Since the lane began to race, or a knob or the mode last changed."""
    slices: tuple[SliceSpeed, ...] = ()
    """Slices since then, oldest first; only what was steady in them."""
    earlier: tuple[EarlierSlices, ...] = ()
    """Slices before that, by the settings they ran under; the latest last."""
    discarded: dict[str, int] = field(default_factory=dict)
    """Windows discarded from steady state, by reason; one with two reasons is in both."""
    discarded_ns: dict[str, int] = field(default_factory=dict)
    """Their time, by reason; that of a window with several reasons is counted once, see `main_reason`."""
    windows: int = 0
    """All windows, the discarded ones included."""
    span_ns: int = 0
    """Time of all windows, the discarded ones included."""
    constant: tuple[str, ...] = ()
    """Disturbances that are there most of the time, so that nothing is discarded for them."""
    latest: tuple[Window, ...] = ()
    """The last steady windows, which a late reading may still discard."""

    def plus(self, window: Window, process: int = 0) -> Measurements:
        """Return the measurements with one more window, from the lane's process of that number."""
        windows, span_ns = self.windows + 1, self.span_ns + window.span_ns
        if window.marks:
            return replace(
                self,
                windows=windows,
                span_ns=span_ns,
                discarded=_counted(self.discarded, window.marks),
                discarded_ns=_plus(self.discarded_ns, main_reason(window.marks), window.span_ns),
            )
        return replace(
            self,
            windows=windows,
            span_ns=span_ns,
            steady=self.steady.plus(window),
            slices=_with_window(self.slices, window, process),
            latest=(*self.latest[-(LATEST - 1) :], window),
        )

    def slice_ended(self, ended: SliceEnded) -> Measurements:
        """Return the measurements with what used the CPU in a slice, unless nothing was steady in it."""
        if ended.load is None or not self.slices or self.slices[-1].round != ended.round:
            return self
        return replace(self, slices=(*self.slices[:-1], replace(self.slices[-1], load=ended.load)))

    def disturbed(self, since_ns: int, until_ns: int, reason: str) -> Measurements:
        """Return the measurements without the windows that overlap a disturbance, known after they ended.

        A disturbance that is there most of the time is how the machine is: then all windows count, and `constant`
        names it.
        """
        hit = tuple(one for one in self.latest if one.at_ns > since_ns and one.at_ns - one.span_ns < until_ns)
        if not hit:
            return self
        share = (self.discarded.get(reason, 0) + len(hit)) / self.windows
        if reason in self.constant or (self.windows >= SETTLED_WINDOWS and share > RARE):
            return replace(self, constant=tuple(sorted({*self.constant, reason})))
        steady, slices = self.steady, self.slices
        for window in hit:
            steady, slices = steady.plus(window, -1), _without_window(slices, window)
        return replace(
            self,
            steady=steady,
            slices=slices,
            latest=tuple(one for one in self.latest if one not in hit),
            discarded=_counted(self.discarded, [reason] * len(hit)),
            discarded_ns=_plus(self.discarded_ns, reason, sum(one.span_ns for one in hit)),
        )

    def restarted(self, settings: Settings) -> Measurements:
        """Return the measurements with a new steady state; `settings` are those in effect until now."""
        earlier = self.earlier
        if self.slices:
            before = next((one for one in earlier if one.settings == settings), None)
            slices = (*(before.slices if before else ()), *self.slices)[-MOST_SLICES:]
            others = [one for one in earlier if one is not before]
            earlier = (*others[-(MOST_EARLIER - 1) :], EarlierSlices(dict(settings), slices))
        return replace(self, steady=WindowSums(), slices=(), latest=(), earlier=earlier)

    def slices_under(self, settings: Settings, in_effect: Settings) -> tuple[SliceSpeed, ...]:
        """Return every slice that ran under these settings, oldest first, given the settings in effect."""
        before = next((one.slices for one in self.earlier if one.settings == settings), ())
        return (*before, *self.slices) if settings == in_effect else before


def _counted(discarded: dict[str, int], reasons: Iterable[str]) -> dict[str, int]:
    total = dict(discarded)
    for reason in reasons:
        total[reason] = total.get(reason, 0) + 1
    return total


def _plus(times_ns: dict[str, int], reason: str, span_ns: int) -> dict[str, int]:
    return {**times_ns, reason: times_ns.get(reason, 0) + span_ns}


def main_reason(marks: Iterable[str]) -> str:
    """Return the reason that the time of a discarded window counts for: the switch to the lane comes last."""
    return min(marks, key=lambda mark: (mark == SLICE_START, mark))


def _with_window(slices: tuple[SliceSpeed, ...], window: Window, process: int) -> tuple[SliceSpeed, ...]:
    if window.round is None:
        return slices
    if slices and slices[-1].round == window.round:
        before = slices[-1]
        examples, span_ns = before.examples + window.examples, before.span_ns + window.span_ns
        return (*slices[:-1], replace(before, at_ns=window.at_ns, examples=examples, span_ns=span_ns))
    speed = SliceSpeed(window.round, window.at_ns, window.examples, window.span_ns, process)
    return (*slices[-(MOST_SLICES - 1) :], speed)


def _without_window(slices: tuple[SliceSpeed, ...], window: Window) -> tuple[SliceSpeed, ...]:
    """Take a window out of its slice; drop the slice if nothing else was steady in it."""
    left = []
    for one in slices:
        if one.round != window.round:
            left.append(one)
        elif one.span_ns > window.span_ns:
            examples, span_ns = one.examples - window.examples, one.span_ns - window.span_ns
            left.append(replace(one, examples=examples, span_ns=span_ns))
    return tuple(left)

"""What is kept of a lane's windows and samples: sums, means, and points of its history."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tfmon.model.knobs import KnobValue, Settings
from tfmon.model.lane_events import Window
from tfmon.model.readings import Missing, Reading

_SUMS = (
    "steps", "examples", "span_ns", "input_ns", "call_ns", "sync_ns", "report_ns", "traced_steps", "traced_ns",
    "sampled", "sampled_input_ns", "sampled_call_ns", "sampled_tail_ns",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class WindowSums:
    """Sums over steady windows: those without a mark. What the sums are of, `events.Window` says."""

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

    def plus(self, window: Window) -> WindowSums:
        """Return the sums with one more window."""
        copied_ns = self.sampled_copy_ns
        if window.sampled_copy_ns is not None:
            copied_ns = (copied_ns or 0) + window.sampled_copy_ns
        return WindowSums(
            windows=self.windows + 1,
            sampled_copy_ns=copied_ns,
            histogram=add(self.histogram, window.histogram),
            **{name: getattr(self, name) + getattr(window, name) for name in _SUMS},
        )

    def minus(self, window: Window) -> WindowSums:
        """Return the sums without a window that is in them."""
        copied_ns = self.sampled_copy_ns
        if copied_ns is not None and window.sampled_copy_ns is not None:
            copied_ns -= window.sampled_copy_ns
        return WindowSums(
            windows=self.windows - 1,
            sampled_copy_ns=copied_ns,
            histogram=subtract(self.histogram, window.histogram),
            **{name: getattr(self, name) - getattr(window, name) for name in _SUMS},
        )

    @property
    def examples_per_s(self) -> float | None:
        """Examples over the wall time of the windows; None before the first, and where nobody told of examples."""
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
    """True for a window of a slice: the rest before it was another lane's round."""


@dataclass(frozen=True, slots=True)
class SliceSpeed:
    """What a lane did in the steady part of one slice."""

    round: int
    """The round the slice belongs to."""
    at_ns: int
    examples: int
    span_ns: int

    @property
    def examples_per_s(self) -> float:
        """Examples over wall time."""
        return self.examples / self.span_ns * 1e9


@dataclass(frozen=True, slots=True)
class KnobMark:
    """A change of a knob, for the charts."""

    at_ns: int
    text: str
    """Such as "prefetch auto"."""
    gap_ns: int


# ---------------- what was measured of one lane: steady windows summed up, slices, and what was left out and why. Pure


MOST_SLICES = 2_000
"""Slices kept under the settings in force."""
MOST_EARLIER = 96
"""Settings whose slices are kept after a knob was changed."""
LATEST = 24
"""Windows that a late reading may still take out; at five a second these are five seconds."""
RARE = 0.5
"""A disturbance that hits a larger share of the windows is what this machine is like: nothing is left out."""
SETTLED_WINDOWS = 20
"""From so many windows on that share is known."""


@dataclass(frozen=True, slots=True)
class EarlierSlices:
    """Slices that ran under settings which a knob has changed since."""

    settings: dict[str, KnobValue]
    slices: tuple[SliceSpeed, ...]


@dataclass(frozen=True, slots=True)
class Measurements:
    """What was measured of one lane.

    Steady state begins anew when a knob or the mode changes; what ran before stays at hand under its settings.
    """

    steady: WindowSums = field(default_factory=WindowSums)
    """Since the lane began to race, or a knob or the mode last changed."""
    slices: tuple[SliceSpeed, ...] = ()
    """Slices since then, oldest first; only what was steady in them."""
    earlier: tuple[EarlierSlices, ...] = ()
    """Slices before that, by the settings they ran under; the latest last."""
    discarded: dict[str, int] = field(default_factory=dict)
    """Windows left out of steady state, by reason."""
    windows: int = 0
    """All windows, those left out included."""
    constant: tuple[str, ...] = ()
    """Disturbances that are there most of the time, so that nothing is left out for them."""
    latest: tuple[Window, ...] = ()
    """The last steady windows, which a reading that comes late may yet take out."""

    def plus(self, window: Window) -> Measurements:
        """Return what is known with one more window."""
        counted = replace(self, windows=self.windows + 1)
        if window.marks:
            return replace(counted, discarded=_counted(self.discarded, window.marks))
        return replace(
            counted,
            steady=self.steady.plus(window),
            slices=_with_turn(self.slices, window),
            latest=(*self.latest[-(LATEST - 1) :], window),
        )

    def disturbed(self, since_ns: int, until_ns: int, reason: str) -> Measurements:
        """Leave out the windows that a disturbance fell into, which became known after they had ended.

        One that is there most of the time is no disturbance but the machine: then all windows count, and
        `constant` names it.
        """
        hit = tuple(one for one in self.latest if one.at_ns > since_ns and one.at_ns - one.span_ns < until_ns)
        if not hit:
            return self
        share = (self.discarded.get(reason, 0) + len(hit)) / self.windows
        if reason in self.constant or (self.windows >= SETTLED_WINDOWS and share > RARE):
            return replace(self, constant=tuple(sorted({*self.constant, reason})))
        steady, slices = self.steady, self.slices
        for window in hit:
            steady, slices = steady.minus(window), _without_turn(slices, window)
        return replace(
            self,
            steady=steady,
            slices=slices,
            latest=tuple(one for one in self.latest if one not in hit),
            discarded=_counted(self.discarded, [reason] * len(hit)),
        )

    def afresh(self, settings: Settings) -> Measurements:
        """Return what is known with steady state beginning anew; the settings are those until now."""
        earlier = self.earlier
        if self.slices:
            before = next((one for one in earlier if one.settings == settings), None)
            slices = (*(before.slices if before else ()), *self.slices)[-MOST_SLICES:]
            others = [one for one in earlier if one is not before]
            earlier = (*others[-(MOST_EARLIER - 1) :], EarlierSlices(dict(settings), slices))
        return replace(self, steady=WindowSums(), slices=(), latest=(), earlier=earlier)

    def slices_under(self, settings: Settings, in_force: Settings) -> tuple[SliceSpeed, ...]:
        """Return every slice that ran under these settings, given the ones in force; oldest first."""
        before = next((one.slices for one in self.earlier if one.settings == settings), ())
        return (*before, *self.slices) if settings == in_force else before


def _counted(discarded: dict[str, int], reasons: list[str] | tuple[str, ...]) -> dict[str, int]:
    total = dict(discarded)
    for reason in reasons:
        total[reason] = total.get(reason, 0) + 1
    return total


def _with_turn(slices: tuple[SliceSpeed, ...], window: Window) -> tuple[SliceSpeed, ...]:
    if window.round is None:
        return slices
    if slices and slices[-1].round == window.round:
        before = slices[-1]
        examples, span_ns = before.examples + window.examples, before.span_ns + window.span_ns
        return (*slices[:-1], SliceSpeed(window.round, window.at_ns, examples, span_ns))
    speed = SliceSpeed(window.round, window.at_ns, window.examples, window.span_ns)
    return (*slices[-(MOST_SLICES - 1) :], speed)


def _without_turn(slices: tuple[SliceSpeed, ...], window: Window) -> tuple[SliceSpeed, ...]:
    """Take a window out of its slice, and the slice with it if nothing else was steady in it."""
    left = []
    for round in slices:
        if round.round != window.round:
            left.append(round)
        elif round.span_ns > window.span_ns:
            examples, span_ns = round.examples - window.examples, round.span_ns - window.span_ns
            left.append(SliceSpeed(round.round, round.at_ns, examples, span_ns))
    return tuple(left)


# ---------------- a compact histogram of durations whose bins grow geometrically, so that windows can be added up


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


def add(left: Mapping[int, int], right: Mapping[int, int]) -> dict[int, int]:
    """Return the histogram of both sets of durations together."""
    total = dict(left)
    for index, amount in right.items():
        total[index] = total.get(index, 0) + amount
    return total


def subtract(left: Mapping[int, int], right: Mapping[int, int]) -> dict[int, int]:
    """Return the histogram without the durations of another one, all of which are in it."""
    rest = {index: amount - right.get(index, 0) for index, amount in left.items()}
    return {index: amount for index, amount in rest.items() if amount}


def quantile_ns(bins: Mapping[int, int], fraction: float) -> float | None:
    """Return the duration below which `fraction` of the counts lie, or None for an empty histogram.

    Units: nanoseconds, to within 0.55 %. Uses the nearest-rank definition.
    """
    total = sum(bins.values())
    if total <= 0:
        return None
    rank = max(1, math.ceil(fraction * total))
    seen = 0
    last = 0
    for last in sorted(bins):
        seen += bins[last]
        if seen >= rank:
            break
    return middle_ns(last)

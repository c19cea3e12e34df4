"""The windows of a lane: sums, slices, last minutes, and the discarded ones with their reasons. Pure.

All windows are stored here only: recent throughput, slices, charts and statistics read them here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from tfmon.model.knobs import KnobValue, Settings
from tfmon.model.lane_events import SliceEnded, Window
from tfmon.model.readings import Reading, SliceLoad
from tfmon.model.window_sums import History, WindowSums, add

SLICE_START = "after a switch"
"""Mark of the windows at the start of a slice, just after the switch to the lane."""
STOPPED = "suspended or paused"
"""Reason of time in which the lane did not run; it is in no share of its time."""
HISTORY_WINDOWS = 1_500
"""Windows kept for the charts: five minutes at five a second."""
SHORTEST_STRETCH_NS = 1_000_000_000
"""Stretches for comparing concurrent lanes contain about five windows of each."""
MOST_SLICES = 2_000
MOST_EARLIER = 96
LATEST = 24
"""Windows that a late reading can still discard: five seconds at five a second."""
RARE = 0.5
"""Above this share of disturbed windows, no window is discarded."""
MOST_POINTS = 256
SETTLED_WINDOWS = 20
"""From this number of windows on, that share is known."""


@dataclass(frozen=True, slots=True)
class Point:
    """One window in the throughput history of a lane."""

    at_ns: int
    span_ns: int
    examples: int
    steps: int
    reason: str = ""
    in_slice: bool = False
    """Whether it lies in a slice: another lane trained in the gap before it."""
    others: bool = False
    """Whether others used the lane's GPU; the window counts nevertheless."""

    @property
    def steady(self) -> bool:
        """Whether it counts."""
        return not self.reason


@dataclass(frozen=True, slots=True)
class KnobMark:
    """A change of a knob, for the charts."""

    at_ns: int
    text: str
    gap_ns: int


@dataclass(frozen=True, slots=True)
class SliceSpeed:
    """The steady part of one slice, and the CPU use of others in the whole slice."""

    round: int
    at_ns: int
    examples: int
    span_ns: int
    process: int = 0
    """Number of the lane's process that ran it, from 1 for the first process of the race."""
    load: SliceLoad | None = None
    """`None` before the slice has ended, and for an interrupted slice."""

    @property
    def examples_per_s(self) -> float:
        """Examples over wall time."""
        return self.examples / self.span_ns * 1e9


@dataclass(frozen=True, slots=True)
class EarlierSlices:
    """Slices under settings before a knob change."""

    settings: dict[str, KnobValue]
    slices: tuple[SliceSpeed, ...]


@dataclass(frozen=True, slots=True)
class LossCurve:
    """Losses reported by windows; when there are too many, every second one is dropped."""

    points: tuple[tuple[int, float], ...] = ()
    every: int = 1
    """One of this many losses is kept."""
    seen: int = 0
    first: float | None = None
    last: float | None = None
    lost: int = 0
    """The first step with a loss that is not a number, after the last finite loss. 0 if none exists."""

    def plus(self, step: int, loss: float | None) -> LossCurve:
        """Return the curve with the loss of a step; unchanged for `None`."""
        if loss is None:
            return self
        first, points, every = loss if self.first is None else self.first, self.points, self.every
        if not self.seen % every:
            points = (*points, (step, loss))
        if len(points) >= MOST_POINTS:
            points, every = points[::2], 2 * every
        lost = 0 if math.isfinite(loss) else self.lost or step
        return LossCurve(points, every, self.seen + 1, first, loss, lost)


@dataclass(frozen=True, slots=True)
class Measurements:
    """The measurements of a lane; a change of a knob or of the mode begins a new steady state."""

    steady: WindowSums = field(default_factory=WindowSums)
    slices: tuple[SliceSpeed, ...] = ()
    """Slices since then, oldest first; only their steady parts."""
    earlier: tuple[EarlierSlices, ...] = ()
    """Slices before that, by their settings; the latest last."""
    discarded: dict[str, int] = field(default_factory=dict)
    """Windows discarded from steady state, by reason; a window with two reasons counts in both."""
    discarded_ns: dict[str, int] = field(default_factory=dict)
    """Their time by reason, and time in no window; a window counts under its `main_reason`."""
    windows: int = 0
    span_ns: int = 0
    """All time from the first step to the last: steady windows and `discarded_ns`."""
    process: int = 0
    """Number of the last window's process. 0 if another process has become the lane since."""
    until_ns: int | None = None
    """End of the last window, also of earlier processes. `None` before the first."""
    unaccounted_ns: int = 0
    """Time between windows of one process in no window, or in two: 0 unless tfmon has a bug."""
    constant: tuple[str, ...] = ()
    """Disturbances that are present most of the time, so that no window is discarded for them."""
    latest: tuple[Window, ...] = ()
    """The last steady windows, which a late reading can still discard."""
    points: tuple[Point, ...] = ()
    history: History = field(default_factory=History)

    def plus(self, window: Window, process: int = 0) -> Measurements:
        """Return the measurements with one more window, from the lane's process of that number."""
        reason, in_slice = "; ".join(window.marks), window.round is not None
        point = Point(window.at_ns, window.span_ns, window.examples, window.steps, reason, in_slice)
        steady, slices, latest = self.steady, self.slices, self.latest
        discarded, discarded_ns = self.discarded, self.discarded_ns
        if window.marks:
            discarded = _counted(discarded, window.marks, window.windows)
            discarded_ns = add(discarded_ns, {main_reason(window.marks): window.span_ns})
        else:
            steady = steady.plus(window)
            slices = _with_window(slices, window, process)
            latest = (*latest[-(LATEST - 1) :], window)
        follows = self.until_ns is not None and process == self.process
        return Measurements(
            steady=steady,
            slices=slices,
            earlier=self.earlier,
            discarded=discarded,
            discarded_ns=add(discarded_ns, window.left_out_ns),
            windows=self.windows + window.windows,
            span_ns=self.span_ns + window.at_ns - window.since_ns,
            process=process,
            until_ns=window.at_ns,
            unaccounted_ns=self.unaccounted_ns + (abs(window.since_ns - (self.until_ns or 0)) if follows else 0),
            constant=self.constant,
            latest=latest,
            points=(*self.points[1 - HISTORY_WINDOWS :], point),
            history=self.history.with_window(window),
        )

    def slice_ended(self, ended: SliceEnded) -> Measurements:
        """Return the measurements with the CPU use in a slice, unless the slice had no steady part."""
        if ended.load is None or not self.slices or self.slices[-1].round != ended.round:
            return self
        return replace(self, slices=(*self.slices[:-1], replace(self.slices[-1], load=ended.load)))

    def disturbed(self, since_ns: int, until_ns: int, reason: str) -> Measurements:
        """Return the measurements without the windows that overlap a disturbance, known after they ended.

        If a disturbance is present most of the time, all windows count, and `constant` contains it.
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
        out = {one.at_ns for one in hit}
        return replace(
            self,
            steady=steady,
            slices=slices,
            latest=tuple(one for one in self.latest if one.at_ns not in out),
            points=tuple(replace(one, reason=reason) if one.at_ns in out else one for one in self.points),
            discarded=_counted(self.discarded, [reason], sum(one.windows for one in hit)),
            discarded_ns=add(self.discarded_ns, {reason: sum(one.span_ns for one in hit)}),
        )

    def restarted(self, settings: Settings) -> Measurements:
        """Return the measurements with a new steady state; `settings` are the settings in effect until now."""
        earlier = self.earlier
        if self.slices:
            before = next((one for one in earlier if one.settings == settings), None)
            slices = (*(before.slices if before else ()), *self.slices)[-MOST_SLICES:]
            others = [one for one in earlier if one is not before]
            earlier = (*others[-(MOST_EARLIER - 1) :], EarlierSlices(dict(settings), slices))
        return replace(self, steady=WindowSums(), slices=(), latest=(), earlier=earlier)

    def with_sample(self, at_ns: int, **readings: Reading) -> Measurements:
        """Return the measurements with a chart sample of the lane's processes or of its GPU."""
        return replace(self, history=self.history.with_sample(at_ns, **readings))

    def with_others(self, since_ns: int, until_ns: int) -> Measurements:
        """Return the measurements with marks on the windows in which others used the lane's GPU."""
        return replace(
            self,
            points=tuple(
                replace(one, others=True) if one.at_ns > since_ns and one.at_ns - one.span_ns < until_ns else one
                for one in self.points
            ),
        )

    def stretches(self, length_ns: int) -> dict[int, SliceSpeed]:
        """Return the sums of steady windows by stretch number, as far as `points` go."""
        result: dict[int, SliceSpeed] = {}
        for point in self.steady_points:
            number = point.at_ns // length_ns
            before = result.get(number)
            examples, span_ns = (before.examples, before.span_ns) if before else (0, 0)
            result[number] = SliceSpeed(number, point.at_ns, examples + point.examples, span_ns + point.span_ns)
        return {number: one for number, one in result.items() if one.examples > 0 and one.span_ns > 0}

    @property
    def ran_ns(self) -> int:
        """Time from the first step to the last, without suspensions and pauses."""
        return self.span_ns - self.discarded_ns.get(STOPPED, 0)

    @property
    def steady_points(self) -> Sequence[Point]:
        """The windows of steady state that are kept separately."""
        count = self.steady.windows
        return [point for point in self.points if point.steady][-count:] if count > 0 else ()

    def slices_under(self, settings: Settings, in_effect: Settings) -> tuple[SliceSpeed, ...]:
        """Return all slices under these settings, oldest first; `in_effect` are the settings in effect."""
        before = next((one.slices for one in self.earlier if one.settings == settings), ())
        return (*before, *self.slices) if settings == in_effect else before


def concurrent_slices(lanes: Sequence[Measurements]) -> tuple[int, list[tuple[SliceSpeed, ...]]]:
    """Return the length of a stretch in nanoseconds, and each lane's sums in each stretch in which all trained.

    The lanes' shares of the cores change from second to second, so only the same seconds are compared.
    Stretches are numbered like rounds. A stretch is as long as two of the longest windows, because lanes with
    long steps report rarely. A lane's first and last stretch count with the time of the lane's windows in them.
    """
    longest_ns = max((point.span_ns for one in lanes for point in one.steady_points), default=0)
    length_ns = max(SHORTEST_STRETCH_NS, 2 * longest_ns)
    sums = [one.stretches(length_ns) for one in lanes]
    common = sorted(set.intersection(*map(set, sums))) if sums else []
    return length_ns, [tuple(one[number] for number in common) for one in sums]


def _counted(discarded: dict[str, int], reasons: Iterable[str], windows: int) -> dict[str, int]:
    return {**discarded, **{reason: discarded.get(reason, 0) + windows for reason in reasons}}


def main_reason(marks: Iterable[str]) -> str:
    """Return the reason that counts for a discarded window: the switch to the lane comes last."""
    return min(marks, key=lambda mark: (mark == SLICE_START, mark))


def _with_window(slices: tuple[SliceSpeed, ...], window: Window, process: int) -> tuple[SliceSpeed, ...]:
    if window.round is None:
        return slices
    if slices and slices[-1].round == window.round:
        before = slices[-1]
        examples, span_ns = before.examples + window.examples, before.span_ns + window.span_ns
        speed = SliceSpeed(before.round, window.at_ns, examples, span_ns, before.process, before.load)
        return (*slices[:-1], speed)
    speed = SliceSpeed(window.round, window.at_ns, window.examples, window.span_ns, process)
    return (*slices[-(MOST_SLICES - 1) :], speed)


def _without_window(slices: tuple[SliceSpeed, ...], window: Window) -> tuple[SliceSpeed, ...]:
    """Remove a window from its slice; drop the slice if no other window in it was steady."""
    left = []
    for one in slices:
        if one.round != window.round:
            left.append(one)
        elif one.span_ns > window.span_ns:
            examples, span_ns = one.examples - window.examples, one.span_ns - window.span_ns
            left.append(replace(one, examples=examples, span_ns=span_ns))
    return tuple(left)

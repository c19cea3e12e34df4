"""The data and scales of the charts. Pure."""

from __future__ import annotations

import functools
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeAlias

from tfmon.model.lane_state import PAUSED, LaneState
from tfmon.model.readings import Missing
from tfmon.model.session import Snapshot
from tfmon.model.windows import LaneSample, LaneWindow
from tfmon.ui.source import OWN, SHARED, SPANS_S, Display, Scale

CHART_NS = 1_000_000_000
SPIKE, SPIKES = 2.0, 0.05
"""Factor above which a peak is a spike, and the largest share of columns that may be spikes."""
UNLIKE = 5
"""Factor between the lanes above which each has its own scale."""
LONGEST_REST_NS = 10_000_000_000
LONGEST_WAIT_NS = 3_000_000_000
"""A longer time without a sample is a gap."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One thing that the charts show."""

    id: str
    label: str
    of: Callable[[Any], float | None]
    sampled: bool = False
    """Whether the metric is sampled, not reported with windows."""
    full: float = 0.0
    binary: bool = False
    """True for bytes. Their scale uses powers of two."""


THROUGHPUT = Metric("throughput", "examples/s", lambda one: one.examples_per_s)
METRICS = (
    THROUGHPUT,
    Metric("p50", "step p50, ms", lambda one: one.p50_ms),
    Metric("p95", "step p95, ms", lambda one: one.p95_ms),
    Metric("loss", "loss", lambda one: one.loss),
    Metric("input", "waiting for input, %", lambda one: one.input_pct, full=100.0),
    Metric("cpu", "CPU, % of a core", lambda one: one.cpu_pct.value, sampled=True),
    Metric("gpu", "GPU busy, %", lambda one: one.gpu_busy_pct.value, sampled=True, full=100.0),
    Metric("memory", "memory", lambda one: one.private_bytes.value, sampled=True, binary=True),
)
BY_ID = {metric.id: metric for metric in METRICS}


def metric_of(view: Display) -> Metric:
    """Return the metric of the charts."""
    return BY_ID.get(view.metric, THROUGHPUT)


def absent(lane: LaneState, metric: Metric) -> str:
    """Return why a lane never has this metric. Empty if it may have it."""
    if metric.id == "gpu" and lane.spec.kind != "gpu":
        return "no GPU in this lane"
    if metric.id == "throughput" and lane.totals.steps and not lane.totals.examples:
        return "it reports no examples"
    if metric.id == "loss" and lane.totals.steps and lane.totals.losses.last is None:
        return "it reports no loss"
    reading = {"cpu": lane.tree.cpu_pct, "memory": lane.tree.private_bytes}.get(metric.id)
    sampled = lane.tree.clock.sampled_ns is not None and isinstance(reading, Missing)
    return reading.reason if sampled and isinstance(reading, Missing) else ""


def next_metric(snapshot: Snapshot, metric: str) -> str:
    """Return the next metric that any lane has."""
    at = [one.id for one in METRICS].index(metric) if metric in BY_ID else 0
    for place in range(1, len(METRICS) + 1):
        one = METRICS[(at + place) % len(METRICS)]
        if not snapshot.lanes or not all(absent(lane, one) for lane in snapshot.lanes):
            return one.id
    return metric


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Which stretch of time the cells of a chart cover."""

    width: int
    first: int
    """Number of the leftmost cell, counted from the clock's zero."""
    cell_ns: int

    def cell_of(self, at_ns: int) -> int:
        """Return the cell of a moment, which may lie outside."""
        return at_ns // self.cell_ns - self.first

    @property
    def start_ns(self) -> int:
        """Where the leftmost cell begins."""
        return self.first * self.cell_ns


def time_axis(now_ns: int, width: int, span_s: int = SPANS_S[0]) -> TimeAxis:
    """Return the axis whose last cell contains `now_ns`."""
    cell_ns = max(1, span_s * 1_000_000_000 // max(1, width))
    return TimeAxis(width, now_ns // cell_ns - width + 1, cell_ns)


Part: TypeAlias = tuple[float, float, float]


def columns(parts: Iterable[Part], axis: TimeAxis, per_cell: int) -> list[float | None]:
    """Return the mean value in each part of each cell."""
    unit_ns, start_ns = axis.cell_ns / per_cell, axis.start_ns
    total = axis.width * per_cell
    sums = [0.0] * total
    covered = [0.0] * total
    for since_ns, until_ns, value in parts:
        begin, end = (since_ns - start_ns) / unit_ns, min((until_ns - start_ns) / unit_ns, float(total))
        place = int(begin)
        if 0 <= begin < end < place + 1:  # nearly all of them: a window is shorter than a cell
            sums[place] += value * (end - begin)
            covered[place] += end - begin
            continue
        for place in range(max(0, int(begin)), min(total, int(end) + 1)):
            share = min(end, place + 1) - max(begin, place)
            if share > 0:
                sums[place] += value * share
                covered[place] += share
    return [amount / share if share > 1e-9 else None for amount, share in zip(sums, covered, strict=True)]


def end_ns(snapshot: Snapshot) -> int:
    """Return the right end of the time axis."""
    ends = [lane.points[-1].at_ns for lane in snapshot.lanes if lane.points]
    ended = all(lane.over or lane.phase == PAUSED for lane in snapshot.lanes)
    return max(ends) if ends and ended else snapshot.at_ns // CHART_NS * CHART_NS


def span_s(snapshot: Snapshot, view: Display) -> int:
    """Return the seconds that the charts show: at the end the whole race."""
    whole = snapshot.over and view.span_s == SPANS_S[0] and snapshot.raced_s
    return min(SPANS_S[-1], math.ceil(whole)) if whole else view.span_s


def axis_of(snapshot: Snapshot, view: Display, width: int) -> TimeAxis:
    """Return the time axis of charts of that width in cells."""
    return time_axis(end_ns(snapshot), width, span_s(snapshot, view))


def values(
    lane: LaneState, metric: Metric, until_ns: int, axis: TimeAxis, per_cell: int
) -> tuple[float | None, ...]:
    """Return the metric in each part of each cell; cached."""
    measured = lane.measurements
    lists: Sequence[Items] = (
        (measured.old_samples, measured.samples) if metric.sampled else (measured.old, measured.recent)
    )
    past = _Past([one for items in lists for one in _between(items, axis.start_ns, until_ns)])
    return _values(past, metric.id, axis, per_cell)


Items: TypeAlias = Sequence[LaneWindow | LaneSample]


class _Past:
    """Items of a lane up to a moment. The same last item means the same items."""

    def __init__(self, items: Items) -> None:
        self.items = items

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Past) and hash(self) == hash(other)

    def __hash__(self) -> int:
        return id(self.items[-1]) if self.items else 0


def _between(items: Items, since_ns: int, until_ns: int) -> Items:
    at_ns = attrgetter("at_ns")
    return items[max(0, bisect_right(items, since_ns, key=at_ns) - 1) : bisect_right(items, until_ns, key=at_ns)]


@functools.lru_cache(maxsize=64)
def _values(past: _Past, metric: str, axis: TimeAxis, per_cell: int) -> tuple[float | None, ...]:
    return tuple(columns(parts(past.items, BY_ID[metric]), axis, per_cell))


def parts(items: Items, metric: Metric) -> Iterator[Part]:
    """Yield values with their times. A slice's first window includes the pause before it."""
    before_ns = 0
    for one in items:
        value = metric.of(one)
        if value is None:
            continue
        begin_ns, end_ns = one.since_ns, one.at_ns
        if isinstance(one, LaneWindow):
            reaches = one.in_slice and 0 < begin_ns - before_ns <= LONGEST_REST_NS
        else:
            begin_ns = begin_ns // CHART_NS * CHART_NS
            end_ns = begin_ns + CHART_NS
            reaches = 0 < begin_ns - before_ns <= LONGEST_WAIT_NS
        if reaches:
            begin_ns = before_ns
        before_ns = end_ns
        if end_ns > begin_ns:
            yield begin_ns, end_ns, value


def scales(snapshot: Snapshot, view: Display, width: int, per_cell: int) -> dict[str, Scale]:
    """Return the scale of every lane, and of all lanes as `SHARED`."""
    metric, until_ns = metric_of(view), end_ns(snapshot)
    axis = axis_of(snapshot, view, width)
    by_lane = {lane.spec.name: values(lane, metric, until_ns, axis, per_cell) for lane in snapshot.lanes}
    own = {name: _scale(metric, [one], view.scales.get(name), OWN) for name, one in by_lane.items()}
    tops = [scale.high for scale in own.values() if scale.high > 0]
    if view.scale == OWN or (not view.scale and not metric.full and tops and max(tops) > UNLIKE * min(tops)):
        return own
    shared = _scale(metric, list(by_lane.values()), view.scales.get(SHARED), SHARED)
    return {SHARED: shared, **dict.fromkeys(by_lane, shared)}


def _scale(metric: Metric, of_lanes: Sequence[Sequence[float | None]], before: Scale | None, kind: str) -> Scale:
    lanes = [[value for value in lane if value is not None and math.isfinite(value)] for lane in of_lanes]
    known = [value for lane in lanes for value in lane]
    before = before or Scale()
    low = -_nice_top(max(0.0, -min(known, default=0.0)), -before.low) if min(known, default=0.0) < 0 else 0.0
    peak = max(map(_typical_peak, lanes), default=0.0)
    if metric.full and kind == SHARED and peak <= metric.full:
        return Scale(0.0, metric.full)
    return Scale(low, _nice_top(peak, before.high, binary=metric.binary))


def _typical_peak(known: Sequence[float]) -> float:
    others = sorted(known)[: math.ceil((1 - SPIKES) * len(known))]
    peak, typical = max(known, default=0.0), max(others, default=0.0)
    return typical if typical > 0 and peak > SPIKE * typical else peak


def _nice_top(peak: float, previous: float = 0.0, *, binary: bool = False) -> float:
    def round_up(value: float) -> float:
        if binary:
            return float(2.0 ** math.ceil(math.log2(value)))
        power = 10.0 ** math.floor(math.log10(value))
        return next(step * power for step in (1, 2, 5, 10, 20) if step * power >= value)

    if peak <= 0:
        return previous
    top = round_up(peak)
    return previous if previous > top and round_up(peak * 1.15) >= previous else top

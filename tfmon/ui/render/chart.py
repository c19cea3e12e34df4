"""Data, scales and drawing of charts."""

from __future__ import annotations

import functools
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeAlias

from tfmon import units
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.knobs import short_name
from tfmon.model.lane_events import PAUSED
from tfmon.model.lane_state import DONE, KnobMark, LaneState
from tfmon.model.readings import Missing
from tfmon.model.session import Snapshot
from tfmon.model.windows import LaneSample, LaneWindow
from tfmon.ui.render.rows import DIM, Row, crop
from tfmon.ui.render.style import faint
from tfmon.ui.source import OWN, SHARED, SPANS_S, Display, Scale

CHART_NS = 1_000_000_000
VALUES_PER_CELL = 2
SPIKE_FACTOR, MOST_SPIKES = 2.0, 0.05
"""Factor above the typical value from which a peak is a spike, and the largest share of spikes."""
OWN_SCALE_RATIO = 5
LONGEST_REST_NS = 10_000_000_000
LONGEST_WAIT_NS = 3_000_000_000
"""A longer time without a sample is a gap."""
Items: TypeAlias = Sequence[LaneWindow | LaneSample]
Values: TypeAlias = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Metric:
    """A charted quantity."""

    id: str
    label: str
    read: Callable[[Any], float | None]
    sampled: bool = False
    """Whether the metric is sampled, not reported in windows."""
    full: float = 0.0
    binary: bool = False
    """Whether the scale uses powers of two."""


THROUGHPUT = Metric("throughput", "examples/s", lambda sample: sample.examples_per_s)
METRICS = (
    THROUGHPUT,
    Metric("p50", "step p50, ms", lambda sample: sample.p50_ms),
    Metric("p95", "step p95, ms", lambda sample: sample.p95_ms),
    Metric("loss", "loss", lambda sample: sample.loss),
    Metric("input", "waiting for input, %", lambda sample: sample.input_pct, full=100.0),
    Metric("cpu", "CPU, % of a core", lambda sample: sample.cpu_pct.value, sampled=True),
    Metric("gpu", "GPU busy, %", lambda sample: sample.gpu_busy_pct.value, sampled=True, full=100.0),
    Metric("memory", "memory", lambda sample: sample.private_bytes.value, sampled=True, binary=True),
)
BY_ID = {metric.id: metric for metric in METRICS}


def absent(lane: LaneState, metric: Metric) -> str:
    """Return why a lane lacks a metric. Empty if the lane may have the metric."""
    if metric.id == "gpu" and lane.spec.kind != "gpu":
        return "no GPU in this lane"
    if metric.id == "throughput" and lane.totals.steps and not lane.totals.examples:
        return "it reports no examples"
    if metric.id == "loss" and lane.totals.steps and lane.totals.losses.last is None:
        return "it reports no loss"
    reading = {"cpu": lane.tree.cpu_pct, "memory": lane.tree.private_bytes}.get(metric.id)
    return reading.reason if lane.tree.clock.sampled_ns is not None and isinstance(reading, Missing) else ""


def next_metric(snapshot: Snapshot, metric: str) -> str:
    """Return the next available metric."""
    index = [*BY_ID].index(metric)
    for candidate in (*METRICS[index + 1 :], *METRICS[:index]):
        if not snapshot.lanes or not all(absent(lane, candidate) for lane in snapshot.lanes):
            return candidate.id
    return metric


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """The time that a chart's cells cover."""

    width: int
    first: int
    """Number of the leftmost cell since the clock's zero."""
    cell_ns: int

    @classmethod
    def until(cls, now_ns: int, width: int, span_s: int = SPANS_S[0]) -> TimeAxis:
        """Return the axis whose last cell contains `now_ns`."""
        cell_ns = max(1, span_s * 1_000_000_000 // max(1, width))
        return cls(width, now_ns // cell_ns - width + 1, cell_ns)

    def cell_of(self, at_ns: int) -> int:
        """Return the cell of a moment, possibly outside."""
        return at_ns // self.cell_ns - self.first


@dataclass(frozen=True, slots=True)
class Charts:
    """A metric of all lanes, for one chart width."""

    metric: Metric
    axis: TimeAxis
    ends: tuple[str, str]
    values: Mapping[str, Values]
    scales: Mapping[str, Scale]
    """Scales by lane name or `SHARED`."""


def charts_of(snapshot: Snapshot, view: Display, width: int) -> Charts:
    """Return values and scales for charts of a width in cells."""
    metric = BY_ID[view.metric]
    ends_ns = [lane.points[-1].at_ns for lane in snapshot.lanes if lane.points]
    ended = ends_ns and all(lane.over or lane.phase == PAUSED for lane in snapshot.lanes)
    until_ns = max(ends_ns) if ended else snapshot.at_ns // CHART_NS * CHART_NS
    whole_s = snapshot.over and view.span_s == SPANS_S[0] and snapshot.raced_s
    span_s = min(SPANS_S[-1], math.ceil(whole_s)) if whole_s else view.span_s
    span = f"{span_s} s" if span_s < 120 else f"{span_s // 60} min"
    axis = TimeAxis.until(until_ns, width, span_s)
    values = {lane.spec.name: values_of(lane, metric, until_ns, axis) for lane in snapshot.lanes}
    ends = (f"{span} before", "end") if snapshot.over else (f"{span} ago", "now")
    return Charts(metric, axis, ends, values, _scales(metric, values, view))


def values_of(lane: LaneState, metric: Metric, until_ns: int, axis: TimeAxis) -> Values:
    """Return a lane's metric in each part of each cell."""
    measured = lane.measurements
    lists: Sequence[Items] = (
        (measured.old_samples, measured.samples) if metric.sampled else (measured.old, measured.recent)
    )
    at_ns, since_ns = attrgetter("at_ns"), axis.first * axis.cell_ns
    items = [
        sample
        for every in lists
        for sample in every[
            max(0, bisect_right(every, since_ns, key=at_ns) - 1) : bisect_right(every, until_ns, key=at_ns)
        ]
    ]
    return columns(parts(items, metric), axis)


def columns(parts: Iterable[tuple[float, float, float]], axis: TimeAxis) -> Values:
    """Return the mean value in each part of each cell."""
    unit_ns, start_ns = axis.cell_ns / VALUES_PER_CELL, axis.first * axis.cell_ns
    total = axis.width * VALUES_PER_CELL
    sums = [0.0] * total
    covered = [0.0] * total
    for since_ns, until_ns, value in parts:
        begin, end = max(0.0, (since_ns - start_ns) / unit_ns), min(total, (until_ns - start_ns) / unit_ns)
        first, last = int(begin), min(total - 1, int(end))
        for index in range(first, last + 1):
            share = (end if index == last else index + 1) - (begin if index == first else index)
            if share > 0:
                sums[index] += value * share
                covered[index] += share
    return [amount / share if share > 1e-9 else None for amount, share in zip(sums, covered, strict=True)]


def parts(items: Items, metric: Metric) -> Iterator[tuple[float, float, float]]:
    """Yield the begin, end and value of each item. The first window of a slice includes the pause before it."""
    before_ns = 0
    for item in items:
        value = metric.read(item)
        if value is None:
            continue
        begin_ns, end_ns, longest_ns = item.since_ns, item.at_ns, LONGEST_WAIT_NS
        if isinstance(item, LaneWindow):
            longest_ns = LONGEST_REST_NS if item.in_slice else 0
        else:
            begin_ns = begin_ns // CHART_NS * CHART_NS
            end_ns = begin_ns + CHART_NS
        if 0 < begin_ns - before_ns <= longest_ns:
            begin_ns = before_ns
        before_ns = end_ns
        if end_ns > begin_ns:
            yield begin_ns, end_ns, value


def _scales(metric: Metric, values: Mapping[str, Values], view: Display) -> dict[str, Scale]:
    by_lane = {name: scale_of(metric, [value], view.scales.get(name), OWN) for name, value in values.items()}
    tops = [scale.high for scale in by_lane.values() if scale.high > 0]
    if view.scale == OWN or (
        not view.scale and not metric.full and tops and max(tops) > OWN_SCALE_RATIO * min(tops)
    ):
        return by_lane
    shared = scale_of(metric, [*values.values()], view.scales.get(SHARED), SHARED)
    return {SHARED: shared, **dict.fromkeys(values, shared)}


def scale_of(metric: Metric, of_lanes: Sequence[Values], before: Scale | None, kind: str) -> Scale:
    """Return a scale for the values. Keep the previous scale if possible."""
    lanes = [[value for value in lane if value is not None and math.isfinite(value)] for lane in of_lanes]
    before, least = before or Scale(), min((value for lane in lanes for value in lane), default=0.0)
    peak = max(map(_typical_peak, lanes), default=0.0)
    if metric.full and kind == SHARED and peak <= metric.full:
        return Scale(0.0, metric.full)
    low = -_nice_top(-least, -before.low) if least < 0 else 0.0
    return Scale(low, _nice_top(peak, before.high, binary=metric.binary))


def _typical_peak(known: Sequence[float]) -> float:
    without_spikes = sorted(known)[: math.ceil((1 - MOST_SPIKES) * len(known))]
    peak, typical = max(known, default=0.0), max(without_spikes, default=0.0)
    return typical if typical > 0 and peak > SPIKE_FACTOR * typical else peak


def _nice_top(peak: float, previous: float, *, binary: bool = False) -> float:
    def round_up(value: float) -> float:
        if binary:
            return float(2.0 ** math.ceil(math.log2(value)))
        power = 10.0 ** math.floor(math.log10(value))
        return next(step * power for step in (1, 2, 5, 10, 20) if step * power >= value)

    if peak <= 0:
        return previous
    top = round_up(peak)
    return previous if previous > top and round_up(peak * 1.15) >= previous else top


LABEL_CELLS = 6
_LEFT_DOTS, _RIGHT_DOTS = (0, 0x40, 0x44, 0x46, 0x47), (0, 0x80, 0xA0, 0xB0, 0xB8)
_CELLS = " " + "".join(chr(0x2800 + left + right) for left in _LEFT_DOTS for right in _RIGHT_DOTS)[1:]
"""Braille by the heights of the left and the right column, each from 0 to 4."""
_MIDDLE_HEIGHT = 9


def chart_rows(lane: LaneState, charts: Charts, height: int, accent: str) -> list[Row]:
    """Return a lane's chart with axes."""
    metric, cells, middle = charts.metric, charts.axis.width, (height - 1) // 2
    scale = charts.scales[lane.spec.name]
    ticks = (scale.low, (scale.low + scale.high) / 2, scale.high)
    low, half, top = (_tick_text(metric, value) for value in ticks)
    if scale.high <= scale.low:
        low, half, top = "0", "", ""
    labels = {middle: half if height > _MIDDLE_HEIGHT else "", 0: top}
    scale_note = " · own scale" if SHARED not in charts.scales and len(charts.values) > 1 else ""
    about = crop(f" {metric.label}{scale_note} ", cells)
    rows: list[Row] = []
    if reason := absent(lane, metric):
        rows = [((" " * (LABEL_CELLS - 1) + "│", DIM),) for _ in range(height - 1)]
        rows[middle] += ((crop(f" n/a ({reason})", cells), DIM),)
    else:
        shares = [share_of(scale, value) for value in charts.values[lane.spec.name]]
        style = faint(accent) if lane.phase in (PAUSED, DONE) else accent
        lines = plot(shares, height - 1)
        for index, share in enumerate(shares if lines else ()):
            if share is not None and share > 1:  # beyond the scale
                cell = index * len(lines[0]) // len(shares)
                lines[0] = f"{lines[0][:cell]}▲{lines[0][cell + 1 :]}"
        for row_index, line in enumerate(lines):
            label = labels.get(row_index, "")
            tick = f"{label:>{LABEL_CELLS - 2}} {'┤' if label else '│'}"
            shown: Row = ((about, DIM), (line[len(about) :], style)) if row_index == 0 else ((line, style),)
            rows.append(((tick, DIM), *shown))
    foot = _axis_row(lane.changes.marks, charts.axis, charts.ends)
    return [*rows, ((f"{low} ┴".rjust(LABEL_CELLS), DIM), (foot, DIM))]


def _tick_text(metric: Metric, value: float) -> str:
    if metric.binary:
        return units.memory(value).replace(" ", "").removesuffix("iB").removesuffix("B").replace(".0", "")
    if value == 0 or abs(value) >= 0.9995:
        return units.short_count(value)
    if abs(value) < 0.001:
        return f"{value:.0e}".replace("e-0", "e-")
    return f"{value:.2g}".replace("0.", "." if abs(value) < 0.0995 else "0.", 1)


def share_of(scale: Scale, value: float | None) -> float | None:
    """Return a value's height as a share of the scale, or None."""
    if value is None or not math.isfinite(value) or scale.high <= scale.low:
        return None
    return max(0.0, (value - scale.low) / (scale.high - scale.low))


def plot(shares: Values, height: int) -> list[str]:
    """Draw shares as columns, two in a cell, the top row first."""
    dots = [0 if share is None else min(height * 4, max(1, round(share * height * 4))) for share in shares]
    columns = [_braille_column(left, right, height) for left, right in zip(dots[::2], dots[1::2], strict=True)]
    return ["".join(cells) for cells in zip(*columns, strict=True)] if columns else [""] * height


@functools.lru_cache(maxsize=2_048)
def _braille_column(left: int, right: int, height: int) -> str:
    heights = ((max(0, min(4, dots - 4 * row)) for dots in (left, right)) for row in reversed(range(height)))
    return "".join(_CELLS[len(_RIGHT_DOTS) * in_left + in_right] for in_left, in_right in heights)


def _axis_row(marks: tuple[KnobMark, ...], axis: TimeAxis, ends: tuple[str, str]) -> str:
    """Return the axis. The latest changes of knobs for whose labels there is room have a tick."""
    line = ["─"] * axis.width
    taken = [False] * axis.width
    left, right = ends
    free = axis.width - len(right) - 1
    free = free if _write(line, taken, free, f" {right}") else axis.width
    for mark in reversed(marks):
        knob, _, value = mark.text.partition(" ")
        cell, label = axis.cell_of(mark.at_ns), f" {short_name(knob)} {value} "
        if 0 <= cell < axis.width:
            cell = min(cell, free - 1)
            _write(line, taken, cell, f"┬{label}") or _write(line, taken, cell - len(label), f"{label}┬")
    _write(line, taken, 0, f"{left} ")
    return "".join(line)


def _write(line: list[str], taken: list[bool], at: int, text: str) -> bool:
    if at < 0 or at + len(text) > len(line) or any(taken[at : at + len(text)]):
        return False
    line[at : at + len(text)] = text
    taken[at : at + len(text)] = [True] * len(text)
    return True

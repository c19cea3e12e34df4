"""Draws the chart of a lane."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from tfmon import units
from tfmon.model.knobs import short_name
from tfmon.model.lane_state import DONE, PAUSED, KnobMark, LaneState
from tfmon.model.session import Snapshot
from tfmon.ui.render import chart_data
from tfmon.ui.render.chart_data import Metric, TimeAxis, metric_of
from tfmon.ui.render.rows import DIM, Row, crop
from tfmon.ui.render.style import faint
from tfmon.ui.source import SHARED, Display, Scale

LABEL_CELLS = 6
PER_CELL = 2
"""Values in a cell of a chart."""
_LEFT_DOTS = (0x40, 0x44, 0x46, 0x47)
_RIGHT_DOTS = (0x80, 0xA0, 0xB0, 0xB8)
_MIDDLE_HEIGHT = 9


def chart_rows(
    lane: LaneState, snapshot: Snapshot, view: Display, width: int, height: int, accent: str
) -> tuple[Row, ...]:
    """Return the chart of the chosen metric with its axes."""
    cells = width - LABEL_CELLS
    metric, axis = metric_of(view), chart_data.axis_of(snapshot, view, cells)
    own = SHARED not in view.scales
    scale = view.scales.get(SHARED) or view.scales.get(lane.spec.name) or Scale()
    low = _scale_words(metric, scale.low) if scale.high > scale.low else "0"
    span_s = chart_data.span_s(snapshot, view)
    shown = f"{span_s} s" if span_s < 120 else f"{span_s // 60} min"
    ends = (f"{shown} before", "end") if snapshot.over else (f"{shown} ago", "now")
    foot = axis_row(lane.changes.marks, axis, ends)
    if reason := chart_data.absent(lane, metric):
        area = _message_area(f"n/a ({reason})", cells, height - 1)
    else:
        about = f" {metric.label}{' · own scale' if own and len(snapshot.lanes) > 1 else ''} "
        values = chart_data.values(lane, metric, chart_data.end_ns(snapshot), axis, PER_CELL)
        top = _scale_words(metric, scale.high) if scale.high > scale.low else ""
        half = _scale_words(metric, (scale.low + scale.high) / 2) if top and height > _MIDDLE_HEIGHT else ""
        style = faint(accent) if lane.phase in (PAUSED, DONE) else accent
        area = _area(_shares(scale, values), (top, half), height - 1, style, crop(about, cells))
    return (*area, ((f"{low} ┴".rjust(LABEL_CELLS), DIM), (foot, DIM)))


@functools.lru_cache(maxsize=64)
def _shares(scale: Scale, values: tuple[float | None, ...]) -> tuple[float | None, ...]:
    return tuple(share(scale, value) for value in values)


@functools.lru_cache(maxsize=64)
def _area(
    shares: tuple[float | None, ...],
    labels: tuple[str, str],
    height: int,
    style: str,
    about: str,
) -> tuple[Row, ...]:
    rows: list[Row] = []
    for place, line in enumerate(_clipped(plot(shares, 1.0, height), shares)):
        label = labels[0] if place == 0 else labels[1] if place == height // 2 else ""
        tick = f"{label:>{LABEL_CELLS - 2}} {'┤' if label else '│'}"
        shown: Row = ((about, DIM), (line[len(about) :], style)) if place == 0 else ((line, style),)
        rows.append(((tick, DIM), *shown))
    return tuple(rows)


def _message_area(text: str, cells: int, height: int) -> tuple[Row, ...]:
    label = " " * (LABEL_CELLS - 1) + "│"
    middle: Row = ((label, DIM), (crop(f" {text}", cells), DIM))
    return tuple(middle if place == height // 2 else ((label, DIM),) for place in range(height))


def _scale_words(metric: Metric, value: float) -> str:
    if metric.binary:
        return units.memory(value).replace(" ", "").removesuffix("iB").removesuffix("B").replace(".0", "")
    if value == 0 or abs(value) >= 0.9995:
        return units.short_count(value)
    if abs(value) < 0.001:
        return f"{value:.0e}".replace("e-0", "e-")
    return f"{value:.2g}".replace("0.", "." if abs(value) < 0.0995 else "0.", 1)


def share(scale: Scale, value: float | None) -> float | None:
    """Return the height of a value on a scale, from 0 to 1, or None."""
    if value is None or not math.isfinite(value) or scale.high <= scale.low:
        return None
    return max(0.0, (value - scale.low) / (scale.high - scale.low))


def plot(values: Sequence[float | None], top: float, height: int) -> list[str]:
    """Draw values as columns, two in a cell, the highest row first."""
    dots = [_level(value, top, height * 4) for value in values]
    columns = [_braille_column(left, right, height) for left, right in zip(dots[::2], dots[1::2], strict=True)]
    return ["".join(cells) for cells in zip(*columns, strict=True)] if columns else [""] * height


def _clipped(lines: list[str], shares: Sequence[float | None]) -> list[str]:
    above = [at for at, share in enumerate(shares) if share is not None and share > 1]
    top = list(lines[0]) if above and lines else []
    for at in above if top else ():
        top[at * len(top) // len(shares)] = "▲"
    return ["".join(top), *lines[1:]] if top else lines


@functools.lru_cache(maxsize=2_048)
def _braille_column(left: int, right: int, height: int) -> str:
    return "".join(_braille(left - row * 4, right - row * 4) for row in reversed(range(height)))


def _braille(left: int, right: int) -> str:
    if left <= 0 and right <= 0:
        return " "
    dots = _LEFT_DOTS[min(left, 4) - 1] if left > 0 else 0
    if right > 0:
        dots |= _RIGHT_DOTS[min(right, 4) - 1]
    return chr(0x2800 + dots)


def _level(value: float | None, top: float, steps: int) -> int:
    if value is None or top <= 0 or math.isnan(value):
        return 0
    return min(steps, max(1, round(value / top * steps)))


@functools.lru_cache(maxsize=64)
def axis_row(marks: tuple[KnobMark, ...], axis: TimeAxis, ends: tuple[str, str] = ("60 s ago", "now")) -> str:
    """Draw the time axis with ticks for knob changes."""
    line = ["─"] * axis.width
    taken = [False] * axis.width
    changes = [(mark.at_ns, *mark.text.partition(" ")) for mark in marks]
    ticks = [(axis.cell_of(at_ns), f"{short_name(knob)} {value}") for at_ns, knob, _, value in changes]
    left, right = ends
    free = axis.width - len(right) - 1
    free = free if _write(line, taken, free, f" {right}") else axis.width
    shown = [(min(place, free - 1), text) for place, text in ticks if 0 <= place < axis.width]
    for place, _ in shown:
        line[place] = "┬"
        taken[place] = True
    for place, text in reversed(shown):
        label = f" {text} "
        _write(line, taken, place + 1, label) or _write(line, taken, place - len(label), label)
    _write(line, taken, 0, f"{left} ")
    return "".join(line)


def _write(line: list[str], taken: list[bool], at: int, text: str) -> bool:
    if at < 0 or at + len(text) > len(line) or any(taken[at : at + len(text)]):
        return False
    line[at : at + len(text)] = text
    taken[at : at + len(text)] = [True] * len(text)
    return True

"""The chart of a lane."""

from __future__ import annotations

import functools
import math

from tfmon import units
from tfmon.model.knobs import short_name
from tfmon.model.lane_events import PAUSED
from tfmon.model.lane_state import DONE, KnobMark, LaneState
from tfmon.ui.render.chart_data import Charts, Metric, TimeAxis, Values, absent
from tfmon.ui.render.rows import DIM, Row, crop
from tfmon.ui.render.style import faint
from tfmon.ui.source import SHARED, Scale

LABEL_CELLS = 6
_LEFT_DOTS = (0x40, 0x44, 0x46, 0x47)
_RIGHT_DOTS = (0x80, 0xA0, 0xB0, 0xB8)
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
        shares = [share(scale, value) for value in charts.values[lane.spec.name]]
        style = faint(accent) if lane.phase in (PAUSED, DONE) else accent
        for row_index, line in enumerate(_clipped(plot(shares, height - 1), shares)):
            label = labels.get(row_index, "")
            tick = f"{label:>{LABEL_CELLS - 2}} {'┤' if label else '│'}"
            shown: Row = ((about, DIM), (line[len(about) :], style)) if row_index == 0 else ((line, style),)
            rows.append(((tick, DIM), *shown))
    foot = axis_row(lane.changes.marks, charts.axis, charts.ends)
    return [*rows, ((f"{low} ┴".rjust(LABEL_CELLS), DIM), (foot, DIM))]


def _tick_text(metric: Metric, value: float) -> str:
    if metric.binary:
        return units.memory(value).replace(" ", "").removesuffix("iB").removesuffix("B").replace(".0", "")
    if value == 0 or abs(value) >= 0.9995:
        return units.short_count(value)
    if abs(value) < 0.001:
        return f"{value:.0e}".replace("e-0", "e-")
    return f"{value:.2g}".replace("0.", "." if abs(value) < 0.0995 else "0.", 1)


def share(scale: Scale, value: float | None) -> float | None:
    """Return a value's height as a share of the scale, or None."""
    if value is None or not math.isfinite(value) or scale.high <= scale.low:
        return None
    return max(0.0, (value - scale.low) / (scale.high - scale.low))


def plot(shares: Values, height: int) -> list[str]:
    """Draw shares as columns, two in a cell, the top row first."""
    dots = [0 if share is None else min(height * 4, max(1, round(share * height * 4))) for share in shares]
    columns = [_braille_column(left, right, height) for left, right in zip(dots[::2], dots[1::2], strict=True)]
    return ["".join(cells) for cells in zip(*columns, strict=True)] if columns else [""] * height


def _clipped(lines: list[str], shares: Values) -> list[str]:
    top = list(lines[0]) if lines else []
    for index, share in enumerate(shares if top else ()):
        if share is not None and share > 1:
            top[index * len(top) // len(shares)] = "▲"
    return ["".join(top), *lines[1:]]


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


def axis_row(marks: tuple[KnobMark, ...], axis: TimeAxis, ends: tuple[str, str]) -> str:
    """Draw the time axis with knob changes."""
    line = ["─"] * axis.width
    taken = [False] * axis.width
    left, right = ends
    free = axis.width - len(right) - 1
    free = free if _write(line, taken, free, f" {right}") else axis.width
    shown = []
    for mark in marks:
        knob, _, value = mark.text.partition(" ")
        cell = axis.cell_of(mark.at_ns)
        if 0 <= cell < axis.width:
            shown.append((min(cell, free - 1), f" {short_name(knob)} {value} "))
    for cell, _ in shown:
        line[cell] = "┬"
        taken[cell] = True
    for cell, label in reversed(shown):
        _write(line, taken, cell + 1, label) or _write(line, taken, cell - len(label), label)
    _write(line, taken, 0, f"{left} ")
    return "".join(line)


def _write(line: list[str], taken: list[bool], at: int, text: str) -> bool:
    if at < 0 or at + len(text) > len(line) or any(taken[at : at + len(text)]):
        return False
    line[at : at + len(text)] = text
    taken[at : at + len(text)] = [True] * len(text)
    return True

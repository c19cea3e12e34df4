"""Draws the chart of a lane. Cells start at multiples of their length, so a finished cell never changes."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from tfmon import units
from tfmon.model.knobs import short_name
from tfmon.model.lane_state import DONE, PAUSED, KnobMark, LaneState
from tfmon.model.session import Snapshot
from tfmon.ui.keys import key_of
from tfmon.ui.render import series
from tfmon.ui.render.rows import DIM, Row, crop, cut
from tfmon.ui.render.series import Metric, TimeAxis, metric_of
from tfmon.ui.render.style import faint
from tfmon.ui.source import OWN, SHARED, SPANS_S, Display, Scale
from tfmon.units import Charset

LABEL_CELLS = 6
_BLOCKS = " ▁▂▃▄▅▆▇█"
_LEFT_DOTS = (0x40, 0x44, 0x46, 0x47)
_RIGHT_DOTS = (0x80, 0xA0, 0xB0, 0xB8)
FLAT = 0.12
"""A chart that stays below this share of a shared scale suggests a separate scale."""
_MIDDLE_HEIGHT = 9


def chart_rows(
    lane: LaneState, snapshot: Snapshot, view: Display, width: int, height: int, accent: str
) -> tuple[Row, ...]:
    """Return the chosen metric over time: `height` rows with the time axis, `width` cells with the scale."""
    cells = width - LABEL_CELLS
    metric, axis = metric_of(view), series.axis_of(snapshot, view, cells)
    scale = view.scales.get(lane.spec.name) or view.scales.get(SHARED) or Scale()
    low = scale_words(metric, scale.low) if scale.high > scale.low else "0"
    plain = (metric.id, view.scale, view.span_s) == ("throughput", SHARED, SPANS_S[0])
    span = "" if view.span_s == SPANS_S[0] else f" · {view.span_s // 60} min"
    own = " · own scale" if view.scale == OWN else ""
    about = "" if plain else crop(f" {metric.label}{own}{span} ", cells)
    shown = f"{view.span_s} s" if view.span_s < 120 else f"{view.span_s // 60} min"
    ends = (f"{shown} before", "end") if snapshot.over else (f"{shown} ago", "now")
    foot = axis_row(lane.changes.marks, axis, ends)
    if reason := series.absent(lane, metric):
        area = _said(f"n/a ({reason})", cells, height - 1)
    else:
        per_cell = parts_per_cell(view.charset)
        values = series.values(lane, metric, series.end_ns(snapshot), axis, per_cell)
        shares = _shares(scale, values)
        if plain and _flat(shares):
            about = crop(f" press {key_of('chart.scale', view.keys)} for its own scale ", cells)
        top = scale_words(metric, scale.high) if scale.high > scale.low else ""
        half = scale_words(metric, (scale.low + scale.high) / 2) if top and height > _MIDDLE_HEIGHT else ""
        edge = faint(accent) if lane.phase in (PAUSED, DONE) else accent
        area = _area(shares, (top, half), height - 1, view.charset, (edge, faint(accent)), about)
    return (*area, ((f"{low} ┴".rjust(LABEL_CELLS), DIM), (foot, DIM)))


@functools.lru_cache(maxsize=64)
def _flat(shares: tuple[float | None, ...]) -> bool:
    known = [share for share in shares if share is not None]
    return bool(known) and max(known) < FLAT


@functools.lru_cache(maxsize=64)
def _shares(scale: Scale, values: tuple[float | None, ...]) -> tuple[float | None, ...]:
    return tuple(share(scale, value) for value in values)


@functools.lru_cache(maxsize=64)
def _area(
    shares: tuple[float | None, ...],
    labels: tuple[str, str],
    height: int,
    charset: Charset,
    colours: tuple[str, str],
    about: str,
) -> tuple[Row, ...]:
    edge, inside = colours
    lines = clipped(plot(shares, 1.0, height, charset), shares)
    blank_label = " " * (LABEL_CELLS - 1) + "│"
    rows: list[Row] = []
    for place, line in enumerate(lines):
        above = lines[place - 1] if place else " " * len(line)
        label = labels[0] if place == 0 else labels[1] if place == height // 2 else ""
        tick = scale_label(label) if label or place == 0 else blank_label
        runs = tuple((text, edge if at_top else inside) for text, at_top in edge_runs(line, above))
        if place == 0 and about:
            runs = ((about, DIM), *cut(runs, len(about), len(line)))
        rows.append(((tick, DIM), *runs))
    return tuple(rows)


def _said(text: str, cells: int, height: int) -> tuple[Row, ...]:
    label = " " * (LABEL_CELLS - 1) + "│"
    rows: list[Row] = [((label, DIM),) for _ in range(height)]
    if rows:
        rows[height // 2] = ((label, DIM), (crop(f" {text}", cells), DIM))
    return tuple(rows)


def scale_words(metric: Metric, value: float) -> str:
    """Write a value of the scale in at most four characters: 8k, 50, 0.5, .05, 16M."""
    if metric.binary:
        return units.memory(value).replace(" ", "").removesuffix("iB").removesuffix("B").replace(".0", "")
    if value == 0 or abs(value) >= 0.9995:
        return units.short_count(value)
    if abs(value) < 0.001:
        return f"{value:.0e}".replace("e-0", "e-")
    return f"{value:.2g}".replace("0.", "." if abs(value) < 0.0995 else "0.", 1)


def share(scale: Scale, value: float | None) -> float | None:
    """Return how high a value lies on a scale, from 0 to 1. None if it cannot be drawn."""
    if value is None or not math.isfinite(value) or scale.high <= scale.low:
        return None
    return max(0.0, (value - scale.low) / (scale.high - scale.low))


def parts_per_cell(charset: Charset) -> int:
    """Return how many values one cell shows side by side."""
    return 2 if charset == "braille" else 1


def plot(values: Sequence[float | None], top: float, height: int, charset: Charset) -> list[str]:
    """Draw values as filled columns, the highest row first; a gap stays empty, and a zero shows its baseline."""
    if charset == "braille":
        dots = [_level(value, top, height * 4) for value in values]
        columns = [_braille_column(left, right, height) for left, right in zip(dots[::2], dots[1::2], strict=True)]
        return ["".join(cells) for cells in zip(*columns, strict=True)] if columns else [""] * height
    steps = 8 if charset == "block" else 2
    glyphs = _BLOCKS if charset == "block" else " :#"
    levels = [_level(value, top, height * steps) for value in values]
    return [
        "".join(glyphs[min(steps, max(0, level - row * steps))] for level in levels)
        for row in reversed(range(height))
    ]


def clipped(lines: list[str], shares: Sequence[float | None]) -> list[str]:
    """Return a drawn chart with a mark on each column that ends above it; `shares` are how high its parts are."""
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


def edge_runs(line: str, above: str) -> list[tuple[str, bool]]:
    """Cut a row of the chart into runs: True for the cells at the top of their column, which show the value."""
    if " " not in above or line.isspace():
        return [(line, False)] if line else []
    runs: list[tuple[str, bool]] = []
    for cell, over in zip(line, above, strict=True):
        edge = over == " " and cell != " "
        if runs and (runs[-1][1] == edge or cell == " "):
            runs[-1] = (runs[-1][0] + cell, runs[-1][1])
        else:
            runs.append((cell, edge))
    return runs


def _level(value: float | None, top: float, steps: int) -> int:
    if value is None or top <= 0 or math.isnan(value):
        return 0
    return min(steps, max(1, round(value / top * steps)))


def scale_label(text: str) -> str:
    """Write a value of the scale, right-aligned, with its tick: `  8k ┤`. Without a value, only the tick."""
    return f"{text:>{LABEL_CELLS - 2}} ┤"


@functools.lru_cache(maxsize=64)
def axis_row(marks: tuple[KnobMark, ...], axis: TimeAxis, ends: tuple[str, str] = ("60 s ago", "now")) -> str:
    """Draw the time axis with a tick, and where there is room the words, for every knob change; newest first."""
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

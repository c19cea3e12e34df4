"""What a chart is drawn with: its time axis, its columns, its characters. Pure.

Time is cut into cells of fixed length that begin at multiples of it, so a finished cell never changes: from one
second to the next only the newest cell grows, and the whole chart moves once a cell. A cell in which nothing was
measured is a gap.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tfmon import units
from tfmon.model.knobs import short_name
from tfmon.model.lane_statistics import KnobMark
from tfmon.units import Charset

SPAN_S = 60
LABEL_CELLS = 6
"""Cells that the scale takes at the left."""
_BLOCKS = " ▁▂▃▄▅▆▇█"
_LEFT_DOTS = (0x40, 0x44, 0x46, 0x47)
_RIGHT_DOTS = (0x80, 0xA0, 0xB0, 0xB8)


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Which stretch of time the cells of a chart cover."""

    width: int
    """Cells."""
    first: int
    """Number of the leftmost cell, counted in cells since the clock's zero."""
    cell_ns: int

    def cell_of(self, at_ns: int) -> int:
        """Return the place of a moment: 0 is the leftmost cell; it may lie outside."""
        return at_ns // self.cell_ns - self.first

    @property
    def start_ns(self) -> int:
        """Where the leftmost cell begins."""
        return self.first * self.cell_ns


def time_axis(now_ns: int, width: int, span_s: int = SPAN_S) -> TimeAxis:
    """Return the axis of `width` cells over a time whose last cell contains `now_ns`."""
    cell_ns = max(1, span_s * 1_000_000_000 // max(1, width))
    return TimeAxis(width, now_ns // cell_ns - width + 1, cell_ns)


def nice_top(peak: float, previous: float = 0.0) -> float:
    """Return a round top of the scale, 1, 2 or 5 times a power of ten, that the peak fits under.

    The previous top is kept until the peak leaves it, or fits the next smaller one with 15 % to spare. Without
    a peak there is no scale yet: 0.
    """
    if peak <= 0:
        return previous
    top = _round_up(peak)
    if previous > top and _round_up(peak * 1.15) >= previous:
        return previous
    return top


def _round_up(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10, 20) if step * power >= value)


Part: TypeAlias = tuple[float, float, float]
"""A stretch of time, from when to when in ns, and a value in it."""


def columns(parts: Iterable[Part], axis: TimeAxis, per_cell: int) -> list[float | None]:
    """Return the mean of what lies in each part of each cell, by time; None where there is nothing."""
    unit_ns = axis.cell_ns / per_cell
    start_ns = axis.first * axis.cell_ns
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


def parts_per_cell(charset: Charset) -> int:
    """Return how many values one cell shows side by side."""
    return 2 if charset == "braille" else 1


def plot(values: Sequence[float | None], top: float, height: int, charset: Charset) -> list[str]:
    """Draw values as filled columns, the highest row first; a gap stays empty, and a zero shows its baseline."""
    if charset == "braille":
        return _plot_braille(values, top, height)
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


def _plot_braille(values: Sequence[float | None], top: float, height: int) -> list[str]:
    levels = [_level(value, top, height * 4) for value in values]
    columns = [_braille_column(left, right, height) for left, right in zip(levels[::2], levels[1::2], strict=True)]
    return ["".join(cells) for cells in zip(*columns, strict=True)] if columns else [""] * height


@functools.lru_cache(maxsize=2_048)
def _braille_column(left: int, right: int, height: int) -> str:
    """Return the cells of a column, the highest first."""
    return "".join(_braille(left - row * 4, right - row * 4) for row in reversed(range(height)))


def _braille(left: int, right: int) -> str:
    if left <= 0 and right <= 0:
        return " "
    dots = _LEFT_DOTS[min(left, 4) - 1] if left > 0 else 0
    if right > 0:
        dots |= _RIGHT_DOTS[min(right, 4) - 1]
    return chr(0x2800 + dots)


def edge_runs(line: str, above: str) -> list[tuple[str, bool]]:
    """Cut a row of the chart into runs: True for the cells at the top of their column, which tell the value."""
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


def scale_label(words: str) -> str:
    """Write a value of the scale, right-aligned, with its tick: `  8k ┤`; without one yet, only the tick."""
    return f"{words:>{LABEL_CELLS - 2}} ┤"


def short_number(value: float) -> str:
    """Write a round number in at most four characters: 8k, 50, 0.5, .05."""
    if value == 0 or abs(value) >= 0.9995:
        return units.short_count(value)
    if abs(value) < 0.001:
        return f"{value:.0e}".replace("e-0", "e-")
    return f"{value:.2g}".replace("0.", "." if abs(value) < 0.0995 else "0.", 1)


@functools.lru_cache(maxsize=64)
def axis_row(marks: tuple[KnobMark, ...], axis: TimeAxis, ends: tuple[str, str] = ("60 s ago", "now")) -> str:
    """Draw the time axis with a tick, and where there is room the words, for every knob change; newest first.

    The latest ones stand before the word at the right end until they have moved there.

    Args:
        marks: The changes.
        axis: The time.
        ends: The words at its ends.
    """
    line = ["─"] * axis.width
    taken = [False] * axis.width
    ticks = [(axis.cell_of(mark.at_ns), _mark_words(mark)) for mark in marks]
    left, right = ends
    free = axis.width - len(right) - 1
    free = free if _write(line, taken, free, f" {right}") else axis.width
    shown = [(min(place, free - 1), text) for place, text in ticks if 0 <= place < axis.width]
    for place, _ in shown:
        line[place] = "┬"
        taken[place] = True
    for place, text in reversed(shown):
        words = f" {text} "
        _write(line, taken, place + 1, words) or _write(line, taken, place - len(words), words)
    _write(line, taken, 0, f"{left} ")
    return "".join(line)


def _mark_words(mark: KnobMark) -> str:
    knob, _, value = mark.text.partition(" ")
    return f"{short_name(knob)} {value}"


def _write(line: list[str], taken: list[bool], at: int, words: str) -> bool:
    """Write words into a free stretch of the line; False if it is not free."""
    if at < 0 or at + len(words) > len(line) or any(taken[at : at + len(words)]):
        return False
    line[at : at + len(words)] = words
    taken[at : at + len(words)] = [True] * len(words)
    return True

"""Throughput over the last minute as rows of text. Pure.

Time is cut into cells of fixed length that begin at multiples of it, so a finished cell never changes: from one
second to the next only the newest cell grows, and the whole chart moves once a cell. A cell in which no window
was reported is a gap.
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from tfmon import units
from tfmon.model.lane_statistics import KnobMark, Point
from tfmon.ui.render.style import Charset
from tfmon.ui.requests import short_name

SPAN_S = 60
LONGEST_REST_NS = 10_000_000_000
"""A longer rest before a slice is drawn as a gap."""
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


def time_axis(now_ns: int, width: int) -> TimeAxis:
    """Return the axis of `width` cells whose last cell contains `now_ns`."""
    cell_ns = max(1, SPAN_S * 1_000_000_000 // max(1, width))
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
    power = 1.0
    if value <= 1:
        return power
    while power * 10 < value:
        power *= 10
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)


def throughput(points: Sequence[Point], axis: TimeAxis, per_cell: int) -> list[float | None]:
    """Return examples/s in each part of each cell, None where no window reaches into it.

    The first window of a slice reaches back over the rest before it, in which another lane trained.
    Units: examples over the time the lane trained, each window spread evenly over its stretch.
    """
    part_ns = axis.cell_ns / per_cell
    start_ns = axis.first * axis.cell_ns
    total = axis.width * per_cell
    examples = [0.0] * total
    covered = [0.0] * total
    for index in range(len(points) - 1, -1, -1):
        point = points[index]
        if point.span_ns <= 0:
            continue
        began_ns = point.at_ns - point.span_ns
        if index and point.in_slice and 0 < began_ns - points[index - 1].at_ns <= LONGEST_REST_NS:
            began_ns = points[index - 1].at_ns
        begin = (began_ns - start_ns) / part_ns
        end = min((point.at_ns - start_ns) / part_ns, float(total))
        if end <= 0:
            break
        per_part = point.examples * part_ns / point.span_ns
        for place in range(max(0, int(begin)), min(total, int(end) + 1)):
            share = min(end, place + 1) - max(begin, place)
            if share > 0:
                examples[place] += per_part * share
                covered[place] += share
    return [
        amount / (share * part_ns) * 1e9 if share > 1e-9 else None
        for amount, share in zip(examples, covered, strict=True)
    ]


class _Past:
    """The points of a lane up to some moment.

    What came before a point never changes, so two pasts that end with the same point are the same.
    """

    def __init__(self, points: Sequence[Point]) -> None:
        self.points = points

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Past) and self.points[-1] is other.points[-1]

    def __hash__(self) -> int:
        return id(self.points[-1])


def past_throughput(
    points: Sequence[Point], until_ns: int, axis: TimeAxis, per_cell: int
) -> tuple[float | None, ...]:
    """Return `throughput` of the points up to a moment; cached, because most refreshes need it again."""
    known = points[: bisect_right(points, until_ns, key=lambda point: point.at_ns)]
    return _past_throughput(_Past(known), axis, per_cell) if known else (None,) * (axis.width * per_cell)


@functools.lru_cache(maxsize=64)
def _past_throughput(past: _Past, axis: TimeAxis, per_cell: int) -> tuple[float | None, ...]:
    return tuple(throughput(past.points, axis, per_cell))


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


def _plot_braille(values: Sequence[float | None], top: float, height: int) -> list[str]:
    levels = [_level(value, top, height * 4) for value in values]
    pairs = list(zip(levels[::2], levels[1::2], strict=True))
    rows = []
    for row in reversed(range(height)):
        base = row * 4
        rows.append("".join(_braille(left - base, right - base) for left, right in pairs))
    return rows


def _braille(left: int, right: int) -> str:
    if left <= 0 and right <= 0:
        return " "
    dots = _LEFT_DOTS[min(left, 4) - 1] if left > 0 else 0
    if right > 0:
        dots |= _RIGHT_DOTS[min(right, 4) - 1]
    return chr(0x2800 + dots)


def edge_runs(line: str, above: str) -> list[tuple[str, bool]]:
    """Cut a row of the chart into runs: True for the cells at the top of their column, which tell the value."""
    runs: list[tuple[str, bool]] = []
    for cell, over in zip(line, above, strict=True):
        edge = over == " " and cell != " "
        if runs and (runs[-1][1] == edge or cell == " "):
            runs[-1] = (runs[-1][0] + cell, runs[-1][1])
        else:
            runs.append((cell, edge))
    return runs


def _level(value: float | None, top: float, steps: int) -> int:
    if value is None or top <= 0:
        return 0
    return min(steps, max(1, round(value / top * steps)))


def scale_label(value: float) -> str:
    """Write a value of the scale, right-aligned, with its tick: `  8k ┤`; without one yet, only the tick."""
    if value <= 0:
        return "┤".rjust(LABEL_CELLS)
    return f"{units.short_count(value):>{LABEL_CELLS - 2}} ┤"


@functools.lru_cache(maxsize=64)
def axis_row(marks: tuple[KnobMark, ...], axis: TimeAxis) -> str:
    """Draw the time axis with a tick, and where there is room the words, for every knob change; newest first."""
    line = ["─"] * axis.width
    taken = [False] * axis.width
    ticks = [(axis.cell_of(mark.at_ns), _mark_words(mark)) for mark in marks]
    shown = [(place, text) for place, text in ticks if 0 <= place < axis.width]
    for place, _ in shown:
        line[place] = "┬"
        taken[place] = True
    _write(line, taken, axis.width - 4, " now")
    for place, text in reversed(shown):
        words = f" {text} "
        _write(line, taken, place + 1, words) or _write(line, taken, place - len(words), words)
    _write(line, taken, 0, f"{SPAN_S} s ago ")
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

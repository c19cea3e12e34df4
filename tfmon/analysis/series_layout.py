"""The table of a crossover, tuning or sweep, and its curves as characters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Sequence
from typing import Any, Literal, TypeAlias

from tfmon import units
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.knobs import KnobValue, Settings, show
from tfmon.model.readings import Estimate

DASH = "–"
Level: TypeAlias = Literal["", "best", "faint", "refused", "failed"]
Cell: TypeAlias = tuple[str, Any]
"""A text, and its sort key."""


@dataclass(frozen=True, slots=True)
class SeriesColumn:
    """A column of the table."""

    name: str
    right: int = 0
    """Width of right-aligned numbers, or 0 for words."""
    most: int = 40
    optional: bool = False
    """Omitted on a narrow screen."""
    estimated: bool = False
    """Whether the cells show the row's estimate."""


@dataclass(frozen=True, slots=True)
class SeriesRow:
    """The measurement of one combination."""

    id: Hashable
    cells: tuple[Cell, ...]
    level: Level = ""
    outcome: Level = ""
    mark: str = " "
    whole: str = ""
    interval: Estimate | None = None


@dataclass(frozen=True, slots=True)
class CurveLine:
    """One line of a curve."""

    id: str
    name: str
    index: int
    points: tuple[Estimate | None, ...]


@dataclass(frozen=True, slots=True)
class SeriesCurve:
    """Throughput, or a ratio, over a knob."""

    knob: str
    title: str
    about: str
    axis: str
    values: tuple[KnobValue, ...]
    lines: tuple[CurveLine, ...]
    """The most important first."""
    marks: tuple[float, ...] = ()
    ratios: bool = False

    def texts(self, point: Estimate) -> tuple[str, str]:
        """Return the texts of a value and of its interval."""
        if self.ratios:
            return units.ratio_in(point.value, point.low, point.high)
        return units.rate(point.value), units.rates(point.low, point.high)


@dataclass(frozen=True, slots=True)
class SeriesTable:
    """The state of a series."""

    columns: tuple[SeriesColumn, ...]
    rows: tuple[SeriesRow, ...]
    curves: tuple[SeriesCurve, ...] = ()
    answer: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    troubles: tuple[str, ...] = ()


def settings_text(settings: Settings) -> str:
    """Return settings as on the command line."""
    return " ".join(f"{knob}={show(value)}" for knob, value in settings.items())


LABEL_CELLS = 8
_BOTH = "*"
CurveRow: TypeAlias = list[tuple[str, int | None]]
"""Characters with the index of their line. The first item is the label."""


def draw_curve(curve: SeriesCurve, width: int, height: int, most: int = 8) -> list[CurveRow]:
    """Return the chart from top to bottom, or nothing if there is no room."""
    values, lines = curve.values, curve.lines[:most]
    columns, rows = width - LABEL_CELLS, height - 2
    scale = _scale([point for line in lines for point in line.points if point is not None])
    if columns < 2 * len(values) or rows < 3 or scale is None:
        return []
    grid: list[CurveRow] = [[(" ", None)] * columns for _ in range(rows)]
    for line in lines:
        _draw(grid, line, scale)
    axis = ["─"] * columns
    for mark in curve.marks:
        axis[_column_of(values, mark, columns)] = "▲"
    chart: list[CurveRow] = [[(_label(at, rows, scale), None), *row] for at, row in enumerate(grid)]
    chart.append([("└".rjust(LABEL_CELLS) + "".join(axis), None)])
    chart.append([(" " * LABEL_CELLS + _ticks(values, columns), None)])
    return chart


def _scale(estimates: Sequence[Estimate]) -> tuple[float, float] | None:
    if not estimates:
        return None
    low, high = min(estimate.low for estimate in estimates), max(estimate.high for estimate in estimates)
    middle = math.log(low) / 2 + math.log(high) / 2
    half = max(math.log(high) - middle, math.log(1.2))
    return middle - half, middle + half


def _row(value: float, scale: tuple[float, float], rows: int) -> int:
    low, high = scale
    share = (math.log(value) - low) / (high - low)
    return min(rows - 1, max(0, round((1 - share) * (rows - 1))))


def _column(at: int, count: int, columns: int) -> int:
    return int((at + 0.5) * columns / count)


def _column_of(values: Sequence[KnobValue], value: float, columns: int) -> int:
    logs = [math.log2(float(value)) for value in values]
    at = (math.log2(value) - logs[0]) / (logs[-1] - logs[0]) * (len(logs) - 1)
    return min(columns - 1, max(0, int((at + 0.5) * columns / len(logs))))


def _draw(grid: list[CurveRow], line: CurveLine, scale: tuple[float, float]) -> None:
    rows, columns, lane = len(grid), len(grid[0]), line.index
    at_columns = (_column(at, len(line.points), columns) for at in range(len(line.points)))
    points = [(column, point) for column, point in zip(at_columns, line.points, strict=True) if point is not None]
    for (left, level), (right, other) in itertools.pairwise(points):
        for column in range(left + 1, right):
            share = (column - left) / (right - left)
            value = math.exp(math.log(level.value) * (1 - share) + math.log(other.value) * share)
            _put(grid, _row(value, scale, rows), column, "·", lane)
    for column, point in points:
        for row in range(_row(point.high, scale, rows), _row(point.low, scale, rows) + 1):
            _put(grid, row, column, "│", lane)
        row = _row(point.value, scale, rows)
        taken = grid[row][column][0]
        grid[row][column] = (_BOTH, None) if taken.isalpha() else (line.id, lane)


def _put(grid: list[CurveRow], row: int, column: int, character: str, lane: int) -> None:
    if grid[row][column][0] in " ·":
        grid[row][column] = (character, lane)


def _label(at: int, rows: int, scale: tuple[float, float]) -> str:
    if at not in (0, rows // 2, rows - 1):
        return "│".rjust(LABEL_CELLS)
    low, high = scale
    value = math.exp(high - (high - low) * at / (rows - 1))
    return f"{units.short_count(value):>{LABEL_CELLS - 2}} ┤"


def _ticks(values: Sequence[KnobValue], columns: int) -> str:
    labels = [show(value) for value in values]
    every = math.ceil((max(map(len, labels)) + 1) * len(labels) / columns)
    line = [" "] * columns
    for at in range(0, len(labels), every):
        start = max(0, min(columns - len(labels[at]), _column(at, len(labels), columns) - len(labels[at]) // 2))
        line[start : start + len(labels[at])] = labels[at]
    return "".join(line).rstrip()

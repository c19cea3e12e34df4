"""The chart of a crossover in the lanes' colours."""

from __future__ import annotations

import itertools

from tfmon.analysis.crossover import Curve
from tfmon.analysis.curve_chart import LABEL_CELLS, draw_curve
from tfmon.ui.render.rows import Row
from tfmon.ui.render.style import DIM, TEXT, strong

__all__ = ["LABEL_CELLS", "chart_rows"]


def chart_rows(curve: Curve, ids: tuple[str, str], styles: tuple[str, str], width: int, height: int) -> list[Row]:
    """Return the chart with its axes: `height` rows of at most `width` cells; none where there is no room."""
    chart = draw_curve(curve, ids, width, height)
    if chart is None:
        return []

    def style(cell: tuple[str, int | None]) -> str:
        character, lane = cell
        if lane is None:
            return TEXT
        return strong(styles[lane]) if character.isalpha() else styles[lane]

    rows: list[Row] = []
    for label, line in zip(chart.labels, chart.grid, strict=True):
        runs = [("".join(text for text, _ in cells), name) for name, cells in itertools.groupby(line, style)]
        rows.append(((label, DIM), *runs))
    return [*rows, *(((text, DIM),) for text in chart.foot)]

"""What the pages of series show above their table: the answer, and a curve; and the history of a race. Pure."""

from __future__ import annotations

import itertools

from tfmon.analysis.analysis import Analysis
from tfmon.analysis.history import HEADS
from tfmon.analysis.series import SeriesColumn, SeriesCurve, SeriesRow, SeriesTable, draw_curve
from tfmon.ui.render.rows import Row, Span, cell_len, entry, wrap
from tfmon.ui.render.style import DIM, STRONG, TEXT, TROUBLE, WARN, lane_style, strong
from tfmon.ui.render.table import Column, Entry

MOST_LINES = 4
"""Lines of a curve that are drawn; the others are in the table."""
MOST_TROUBLES = 3
_STYLES = {"": TEXT, "best": STRONG, "faint": DIM, "refused": WARN, "failed": TROUBLE}
"""By the level of a row, or of what came of it."""


def history_rows(analysis: Analysis, width: int) -> list[Row]:
    """Return the history as a table; where that is too wide, each change with what came of it beside its time."""
    heads, *cells = [HEADS, *(row.cells(analysis.snapshot) for row in analysis.history)]
    if not cells:
        return [(("   no setting was changed yet", TEXT),)]
    sizes = [max(map(cell_len, column)) for column in zip(heads, *cells, strict=True)]
    if sum(sizes) + 3 * len(sizes) > width:
        return [row for at, *told in cells for row in entry(at, "   ".join(filter(None, told)), width, STRONG)]
    lines = ["   ".join(map(str.ljust, row, sizes)) for row in (heads, *cells)]
    return [((f" {line}", TEXT if place else DIM),) for place, line in enumerate(lines)]


# ---------------------------------------------------------------- the table of a series


def places_in(columns: tuple[SeriesColumn, ...], width: int) -> tuple[int, ...]:
    """Return the places of the columns that have room."""
    places = list(range(len(columns)))
    for place in reversed([at for at in places if columns[at].optional]):
        if sum(columns[at].most + 2 for at in places) - 2 <= width:
            break
        places.remove(place)
    return tuple(places)


def columns_at(columns: tuple[SeriesColumn, ...], places: tuple[int, ...]) -> tuple[Column, ...]:
    """Return the columns at these places, for a list."""
    shown = [columns[at] for at in places]
    return tuple(Column(one.name.rjust(one.right), one.most) for one in shown)


def entry_of(row: SeriesRow, columns: tuple[SeriesColumn, ...], places: tuple[int, ...]) -> Entry:
    """Return a row as an entry of a list, with the columns at these places."""
    last = len(columns) - 1
    cells: list[Span] = []
    for at in places:
        text, style = row.cells[at][0], _STYLES[row.outcome if at == last else row.level]
        cells.append((text.rjust(columns[at].right), style))
    ranks = tuple(row.cells[at][1] for at in places)
    return Entry(row.id, tuple(cells), ranks, whole=row.whole, mark=row.mark)


def answer_rows(table: SeriesTable, width: int) -> list[Row]:
    """Return what went wrong, the answer with its code, and how far the series is."""
    rows: list[Row] = [((f" {line}", WARN),) for line in table.troubles[-MOST_TROUBLES:]]
    rows += [((f" {part}", STRONG),) for line in table.answer for part in wrap(line, width - 2, 3)]
    rows += [((f"   {line}", TEXT),) for line in table.code]
    return [*rows, *(((f" {part}", DIM),) for line in table.notes for part in wrap(line, width - 2, 3))]


def curve_rows(curve: SeriesCurve, width: int, height: int) -> list[Row]:
    """Return a curve below what its lines are; only that where there is no room for a chart."""
    rows = _legend(curve, width)
    chart = draw_curve(curve, width - 2, height - len(rows), MOST_LINES)
    if chart is None:
        return rows
    for label, cells in zip(chart.labels, chart.grid, strict=True):
        runs = [("".join(text for text, _ in run), style) for style, run in itertools.groupby(cells, _style_of)]
        rows.append(((f" {label}", DIM), *runs))
    return [*rows, *(((f" {line}", DIM),) for line in chart.foot)]


def _style_of(cell: tuple[str, int | None]) -> str:
    character, place = cell
    if place is None:
        return TEXT
    return strong(lane_style(place)) if character.isalpha() else lane_style(place)


def _legend(curve: SeriesCurve, width: int) -> list[Row]:
    """Return what is drawn and which letter is which line, in one row if there is room."""
    title: Row = ((f" {curve.title}", STRONG),)
    lines: list[Span] = []
    for line in curve.lines[:MOST_LINES]:
        if line.name:
            lines += [("   ", TEXT), (f"{line.id} {line.name}", lane_style(line.place))]
    if len(curve.lines) > MOST_LINES:
        lines.append(("   the others are in the table", DIM))
    whole: Row = (*title, *lines)
    return [whole] if sum(len(text) for text, _ in whole) <= width else [title, tuple(lines)]

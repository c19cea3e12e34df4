"""The entries of lists, and the rows of series. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tfmon.analysis.series_layout import (
    DASH,
    SeriesColumn,
    SeriesCurve,
    SeriesRow,
    SeriesTable,
    draw_curve,
)
from tfmon.model.readings import Estimate
from tfmon.ui.render.rows import BLANK, DIM, TEXT, Row, Span, cell_len, plain, wrap
from tfmon.ui.render.style import STRONG, TROUBLE, WARN, lane_style, strong

GAP = 2
MARK_CELLS = 2
LAST_CELLS = 20
"""Minimum width of the last column."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a list; the last one takes the rest."""

    name: str
    most: int = 40


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a list."""

    id: Hashable
    cells: tuple[Span, ...]
    ranks: tuple[Any, ...] = ()
    whole: str = ""
    """The complete text, displayed if the row cannot show it."""
    mark: str = " "
    """One or two characters before the entry."""
    searched: str = ""

    @property
    def row(self) -> tuple[Span, ...]:
        """The cells with the mark before the first one."""
        (first, style), *others = self.cells
        return ((f"{self.mark:<{MARK_CELLS}}{first}", style), *others)

    @property
    def text(self) -> str:
        """The text that a filter searches."""
        return self.searched or " ".join([*(text for text, _ in self.cells), self.whole])


@dataclass(frozen=True, slots=True)
class Order:
    """How a list is sorted."""

    column: int | None = None
    down: bool = False


NO_ORDER = Order()


def matches(text: str, filter_text: str) -> bool:
    """Return whether a text contains all words, in any case."""
    text = text.lower()
    return all(word in text for word in filter_text.lower().split())


def arranged(entries: Sequence[Entry], filter_text: str, order: Order) -> list[Entry]:
    """Return the matching entries, sorted; entries without a rank are last."""
    matching = (
        [entry for entry in entries if matches(entry.text, filter_text)] if filter_text.strip() else list(entries)
    )
    column = order.column
    if column is None:
        return matching[::-1] if order.down else matching

    def rank(entry: Entry) -> Any:  # noqa: ANN401 - numbers or texts, alike in a column
        return entry.ranks[column] if entry.ranks else entry.cells[column][0].lower()

    known = sorted((one for one in matching if rank(one) is not None), key=rank, reverse=order.down)
    return known + [one for one in matching if rank(one) is None]


def matching_rows(rows: Sequence[Row], filter_text: str) -> list[Row]:
    """Return the matching entries with the heads of their sections."""
    kept_rows: list[Row] = []
    for filled, section in itertools.groupby(rows, lambda row: bool("".join(plain([row])).strip())):
        if not filled:
            continue
        head, *rest = section
        indents = [len(text) - len(text.lstrip()) for text in plain(rest)]
        blocks: list[list[Row]] = []
        for row, indent in zip(rest, indents, strict=True):
            if blocks and indent > min(indents):
                blocks[-1].append(row)
            else:
                blocks.append([row])
        kept = [block for block in blocks if matches(" ".join(plain(block)), filter_text)]
        if matches(" ".join(plain([head])), filter_text):
            kept = blocks
        elif not kept:
            continue
        kept_rows += [*([BLANK] if kept_rows else []), head, *(row for block in kept for row in block)]
    return kept_rows


def heads_of(columns: Sequence[Column]) -> list[str]:
    """Return the names of the columns as they stand above the cells."""
    return [one.name if at else " " * MARK_CELLS + one.name for at, one in enumerate(columns)]


def widths(columns: Sequence[Column], entries: Sequence[Entry], width: int) -> list[int]:
    """Return the width of each column."""
    rows, heads = [entry.row for entry in entries], heads_of(columns)
    needed = [
        min(
            column.most + (0 if at else MARK_CELLS),
            max([cell_len(heads[at]) + 1, *(cell_len(row[at][0]) for row in rows)]),
        )
        for at, column in enumerate(columns[:-1])
    ]
    left = width - sum(needed) - GAP * len(columns)
    enough = min(LAST_CELLS, max([0, *(cell_len(row[-1][0]) for row in rows)]))
    while needed and left < enough and max(needed) > 8:
        widest = needed.index(max(needed))
        needed[widest] -= 1
        left += 1
    return [*needed, max(1, left)]


def whole_rows(entry: Entry, sizes: Sequence[int], width: int, limit: int) -> list[Row]:
    """Return the text of the chosen entry that its row does not show."""
    cells = zip(entry.cells, entry.row, sizes, strict=True)
    cut = [text.strip() for (text, _), (drawn, _), size in cells if cell_len(drawn) > size]
    said = "\n".join(text for text in dict.fromkeys([*cut, entry.whole]) if text and text not in entry.whole[:-1])
    if not said or limit < 2:
        return []
    return [BLANK, *(((f"   {line}", DIM),) for line in wrap(said, width - 6, limit - 1))]


MOST_LINES = 4
MOST_TROUBLES = 3
_STYLES = {"": TEXT, "best": STRONG, "faint": DIM, "refused": WARN, "failed": TROUBLE}


def places_in(columns: tuple[SeriesColumn, ...], width: int) -> tuple[int, ...]:
    """Return the places of the columns that have room."""
    places = list(range(len(columns)))
    for place in reversed([at for at in places if columns[at].optional]):
        if sum(columns[at].most + 2 for at in places) - 2 <= width:
            break
        places.remove(place)
    return tuple(places)


BAR_HEAD = "slower  1  faster"
BAR_CELLS = len(BAR_HEAD)
FURTHEST = 32.0
WITH_BARS = 100
"""Width from which intervals are drawn."""


def columns_of(table: SeriesTable, width: int) -> tuple[tuple[Column, ...], list[Entry]]:
    """Return the columns that have room, with a bar after the last one of an interval, and the entries."""
    columns = table.columns
    estimated = [at for at, column in enumerate(columns) if column.estimated and width >= WITH_BARS]
    bar_at = max(estimated, default=None)
    places = places_in(columns, width - (BAR_CELLS + GAP if estimated else 0))
    reach = reach_of(row.interval for row in table.rows)
    heads: list[Column] = []
    for at in places:
        heads.append(Column(columns[at].name.rjust(columns[at].right), columns[at].most))
        heads += [Column(BAR_HEAD)] if at == bar_at else []
    return tuple(heads), [_entry_of(row, columns, places, bar_at, reach) for row in table.rows]


def _entry_of(
    row: SeriesRow, columns: Sequence[SeriesColumn], places: Sequence[int], bar_at: int | None, reach: float
) -> Entry:
    last, known = len(columns) - 1, row.interval is None or row.interval.is_narrow
    cells: list[Span] = []
    ranks: list[Any] = []
    for at in places:
        text, style = row.cells[at][0], _STYLES[row.outcome if at == last else row.level]
        text = text if known or not columns[at].estimated else DASH
        cells.append((text.rjust(columns[at].right), style))
        ranks.append(row.cells[at][1])
        if at == bar_at:
            cells.append((interval_bar(row.interval, reach), _STYLES[row.level]))
            ranks.append(row.interval.value if row.interval is not None and known else None)
    return Entry(row.id, tuple(cells), tuple(ranks), whole=row.whole, mark=row.mark)


def reach_of(intervals: Iterable[Estimate | None]) -> float:
    """Return the largest factor from 1 to an end of an interval that means anything."""
    known = [one for one in intervals if one is not None and one.is_narrow]
    return min(FURTHEST, max((max(one.high, 1 / one.low) for one in known), default=1.0))


def interval_bar(interval: Estimate | None, reach: float) -> str:
    """Draw an interval between 1/`reach` and `reach`, with 1 in the middle."""
    half = BAR_CELLS // 2
    line = [" "] * BAR_CELLS
    line[half] = "│"
    if interval is None or reach <= 1 or not interval.is_narrow:
        return "".join(line)

    def cell(value: float) -> int:
        return half + round(half * max(-1.0, min(1.0, math.log(value) / math.log(reach))))

    low, high = cell(interval.low), cell(interval.high)
    line[low : high + 1] = "─" * (high - low + 1)
    line[low], line[high], line[cell(interval.value)] = "├", "┤", "●"
    return "".join(line)


def answer_rows(table: SeriesTable, width: int) -> list[Row]:
    """Return the answer and the problems of a series."""
    rows: list[Row] = [((f" {line}", WARN),) for line in table.troubles[-MOST_TROUBLES:]]
    rows += [((f" {part}", STRONG),) for line in table.answer for part in wrap(line, width - 2, 3)]
    rows += [((f"   {line}", TEXT),) for line in table.code]
    return [*rows, *(((f" {part}", DIM),) for line in table.notes for part in wrap(line, width - 2, 3))]


def curve_rows(curve: SeriesCurve, width: int, height: int) -> list[Row]:
    """Return a curve below its legend."""
    title: Row = ((f" {curve.title}", STRONG),)
    lines: list[Span] = []
    for line in curve.lines[:MOST_LINES]:
        if line.name:
            lines += [("   ", TEXT), (f"{line.id} {line.name}", lane_style(line.place))]
    if len(curve.lines) > MOST_LINES:
        lines.append(("   the others are in the table", DIM))
    whole: Row = (*title, *lines)
    rows = [whole] if sum(len(text) for text, _ in whole) <= width else [title, tuple(lines)]
    chart = draw_curve(curve, width - 2, height - len(rows), MOST_LINES)
    if chart is None:
        return rows

    def style_of(cell: tuple[str, int | None]) -> str:
        character, place = cell
        if place is None:
            return TEXT
        return strong(lane_style(place)) if character.isalpha() else lane_style(place)

    for label, cells in zip(chart.labels, chart.grid, strict=True):
        runs = [("".join(text for text, _ in run), style) for style, run in itertools.groupby(cells, style_of)]
        rows.append(((f" {label}", DIM), *runs))
    return [*rows, *(((f" {foot}", DIM),) for foot in chart.foot)]

"""Entries of lists, and rows of series."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from rich.cells import cell_len

from tfmon.analysis.series_layout import DASH, Cell, SeriesColumn, SeriesCurve, SeriesRow, SeriesTable, draw_curve
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.readings import Estimate
from tfmon.ui.render.rows import BLANK, DIM, TEXT, Row, Span, plain, styled_lines
from tfmon.ui.render.style import STRONG, TROUBLE, WARN, lane_style, strong

GAP = 2
MARK_CELLS = 2
LEAST_LAST_CELLS, LEAST_CELLS, MOST_CELLS = 20, 8, 40


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a list."""

    id: Hashable
    cells: tuple[Span, ...]
    ranks: tuple[Any, ...] = ()
    whole: str = ""
    """Complete text, displayed if the row does not fit."""
    mark: str = " "

    @property
    def row(self) -> tuple[Span, ...]:
        """The cells, with the mark before the first cell."""
        (first, style), *rest = self.cells
        return ((f"{self.mark:<{MARK_CELLS}}{first}", style), *rest)

    @property
    def text(self) -> str:
        """The text that a filter searches."""
        return " ".join([*(text for text, _ in self.cells), self.whole])


def matches(text: str, filter_text: str) -> bool:
    """Return whether a text contains all words, ignoring case."""
    text = text.lower()
    return all(word in text for word in filter_text.lower().split())


def arranged(entries: Sequence[Entry], filter_text: str, column: int | None, *, down: bool) -> list[Entry]:
    """Return the matching entries sorted by a column; unranked entries are last."""
    matching = [entry for entry in entries if not filter_text or matches(entry.text, filter_text)]
    if column is None:
        return matching[::-1] if down else matching

    def rank(entry: Entry) -> Any:  # noqa: ANN401 - numbers or texts, alike in a column
        return entry.ranks[column] if entry.ranks else entry.cells[column][0].lower()

    known = sorted((entry for entry in matching if rank(entry) is not None), key=rank, reverse=down)
    return known + [entry for entry in matching if rank(entry) is None]


def matching_rows(rows: Sequence[Row], filter_text: str) -> list[Row]:
    """Return the matching entries with their headings."""
    kept_rows: list[Row] = []
    for filled, section in itertools.groupby(rows, lambda row: bool("".join(plain([row])).strip())):
        if not filled:
            continue
        heading, *rest = section
        indents = [len(text) - len(text.lstrip()) for text in plain(rest)]
        blocks: list[list[Row]] = []
        for row, indent in zip(rest, indents, strict=True):
            if blocks and indent > min(indents):
                blocks[-1].append(row)
            else:
                blocks.append([row])
        kept = [block for block in blocks if matches(" ".join(plain(block)), filter_text)]
        if matches(" ".join(plain([heading])), filter_text):
            kept = blocks
        elif not kept:
            continue
        kept_rows += [*([BLANK] if kept_rows else []), heading, *(row for block in kept for row in block)]
    return kept_rows


def widths(columns: Sequence[str], entries: Sequence[Entry], width: int) -> list[int]:
    """Return the width of each column; the last column takes the remaining width."""
    longest = [max((cell_len(entry.row[at][0]) for entry in entries), default=0) for at in range(len(columns))]
    heads = [cell_len(name) + 1 + (0 if at else MARK_CELLS) for at, name in enumerate(columns)]
    sizes = [min(max(MOST_CELLS, width // 2), size) for size in map(max, heads[:-1], longest)]
    left = width - sum(sizes) - GAP * len(columns)
    while sizes and left < min(LEAST_LAST_CELLS, longest[-1]) and max(sizes) > LEAST_CELLS:
        sizes[sizes.index(max(sizes))] -= 1
        left += 1
    return [*sizes, max(1, left)]


def whole_rows(entry: Entry, sizes: Sequence[int], width: int, limit: int) -> list[Row]:
    """Return the part of an entry that the row does not show."""
    cells = zip(entry.cells, entry.row, sizes, strict=True)
    cut = [text.strip() for (text, _), (drawn, _), size in cells if cell_len(drawn) > size]
    hidden = "\n".join(
        text for text in dict.fromkeys([*cut, entry.whole]) if text and text not in entry.whole[:-1]
    )
    if not hidden or limit < 2:
        return []
    return [BLANK, *styled_lines(hidden, width - 3, limit - 1, DIM, "   ")]


MOST_LINES = 4
MOST_TROUBLES = 3
_STYLES = {"": TEXT, "best": STRONG, "faint": DIM, "refused": WARN, "failed": TROUBLE}
BAR_HEAD = "slower  1  faster"
BAR_CELLS = len(BAR_HEAD)
FURTHEST = 32.0
LEAST_WIDTH_WITH_BARS = 100


def columns_of(table: SeriesTable, width: int) -> tuple[tuple[str, ...], list[Entry]]:
    """Return the columns that fit, with a bar after the last interval, and the entries."""
    columns, rows = [*table.columns], [[*row.cells] for row in table.rows]
    estimated = [at for at, column in enumerate(columns) if column.estimated]
    if estimated and width >= LEAST_WIDTH_WITH_BARS:
        reach, bar_at = reach_of(row.interval for row in table.rows), estimated[-1] + 1
        columns.insert(bar_at, SeriesColumn(BAR_HEAD, most=BAR_CELLS))
        for row, cells in zip(table.rows, rows, strict=True):
            ratio = row.interval.value if row.interval is not None and row.interval.is_narrow else None
            cells.insert(bar_at, (interval_bar(row.interval, reach), ratio))
    shown = [*range(len(columns))]
    for index in [at for at in reversed(shown) if columns[at].optional]:
        if sum(columns[at].most + GAP for at in shown) - GAP > width:
            shown.remove(index)

    def entry_of(row: SeriesRow, cells: Sequence[Cell]) -> Entry:
        hidden = row.interval is not None and not row.interval.is_narrow
        texts = [DASH if hidden and columns[at].estimated else cells[at][0] for at in shown]
        styles = [_STYLES[row.outcome if at == len(columns) - 1 else row.level] for at in shown]
        spans = [
            (text.rjust(columns[at].right), style) for at, text, style in zip(shown, texts, styles, strict=True)
        ]
        return Entry(row.id, tuple(spans), tuple(cells[at][1] for at in shown), whole=row.whole, mark=row.mark)

    heads = tuple(columns[at].name.rjust(columns[at].right) for at in shown)
    return heads, [*map(entry_of, table.rows, rows)]


def reach_of(intervals: Iterable[Estimate | None]) -> float:
    """Return the largest distance of a narrow interval's end from 1, as a factor."""
    known = [interval for interval in intervals if interval is not None and interval.is_narrow]
    return min(FURTHEST, max((max(interval.high, 1 / interval.low) for interval in known), default=1.0))


def interval_bar(interval: Estimate | None, reach: float) -> str:
    """Draw an interval on an axis from 1/`reach` to `reach`."""
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
    """Return the answer and problems of a series."""
    rows: list[Row] = [((f" {line}", WARN),) for line in table.troubles[-MOST_TROUBLES:]]
    rows += [row for line in table.answer for row in styled_lines(line, width - 1, 3, STRONG, " ")]
    rows += [((f"   {line}", TEXT),) for line in table.code]
    return rows + [row for line in table.notes for row in styled_lines(line, width - 1, 3, DIM, " ")]


def curve_rows(curve: SeriesCurve, width: int, height: int) -> list[Row]:
    """Return a curve with a legend."""
    title: Row = ((f" {curve.title}", STRONG),)
    lines: list[Span] = []
    for line in curve.lines[:MOST_LINES]:
        if line.name:
            lines += [("   ", TEXT), (f"{line.id} {line.name}", lane_style(line.index))]
    if len(curve.lines) > MOST_LINES:
        lines.append(("   the others are in the table", DIM))
    whole: Row = (*title, *lines)
    rows = [whole] if sum(len(text) for text, _ in whole) <= width else [title, tuple(lines)]

    def style_of(cell: tuple[str, int | None]) -> str:
        character, line_index = cell
        if line_index is None:
            return TEXT
        return strong(lane_style(line_index)) if character.isalpha() else lane_style(line_index)

    for (label, _), *cells in draw_curve(curve, width - 2, height - len(rows), MOST_LINES):
        runs = [("".join(text for text, _ in run), style) for style, run in itertools.groupby(cells, style_of)]
        rows.append(((f" {label}", DIM), *runs))
    return rows

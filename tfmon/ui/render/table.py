"""Lists of entries in columns: filtered, sorted, with one of them chosen, and its whole text below. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from tfmon.ui.render.rows import BLANK, Row, Span, cell_len, crop, wrap
from tfmon.ui.render.style import DIM, STRONG, TEXT, strong

GAP = 2
MARK_CELLS = 3
"""Cells before the first column, for the mark of the chosen entry."""
LAST_CELLS = 20
"""The other columns are cut before the last one has less, where it needs so many."""
MOST_ROWS = 6
"""An entry of a list that wraps takes so many rows at most; the whole text is below the list."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a list; the last one takes the room that is left."""

    name: str
    most: int = 40
    """Cells that it takes at most."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a list."""

    id: Hashable
    """What it is known by while the list changes."""
    cells: tuple[Span, ...]
    """A text for every column."""
    ranks: tuple[Any, ...] = ()
    """What each column sorts by; empty for the texts."""
    whole: str = ""
    """All that there is to say about it; shown where its row cannot."""
    mark: str = " "
    """One or two characters before it; colour is never the only cue."""
    searched: str = ""
    """What a filter looks in; empty for all its texts."""

    @property
    def text(self) -> str:
        """What a filter looks in."""
        return self.searched or " ".join([*(text for text, _ in self.cells), self.whole])


@dataclass(frozen=True, slots=True)
class Order:
    """How a list is sorted."""

    column: int | None = None
    """None for the order in which the entries come."""
    down: bool = False


def matches(text: str, words: str) -> bool:
    """Return whether a text contains every one of the words, in any case."""
    text = text.lower()
    return all(word in text for word in words.lower().split())


def arranged(entries: Sequence[Entry], words: str, order: Order) -> list[Entry]:
    """Return the entries that contain the words, sorted; those without a rank stand last."""
    found = [entry for entry in entries if matches(entry.text, words)] if words.strip() else list(entries)
    column = order.column
    if column is None:
        return found[::-1] if order.down else found

    def rank(entry: Entry) -> Any:  # noqa: ANN401 - numbers or texts, alike in a column
        return entry.ranks[column] if entry.ranks else entry.cells[column][0].lower()

    known = sorted((one for one in found if rank(one) is not None), key=rank, reverse=order.down)
    return known + [one for one in found if rank(one) is None]


def widths(columns: Sequence[Column], entries: Sequence[Entry], width: int) -> list[int]:
    """Return the cells of each column: what its texts need, and the rest for the last one."""
    needed = [
        min(column.most, max([cell_len(column.name) + 1, *(cell_len(one.cells[at][0]) for one in entries)]))
        for at, column in enumerate(columns[:-1])
    ]
    left = width - MARK_CELLS - sum(needed) - GAP * len(needed)
    enough = min(LAST_CELLS, max([0, *(cell_len(one.cells[-1][0]) for one in entries)]))
    while needed and left < enough and max(needed) > 8:
        widest = needed.index(max(needed))
        needed[widest] -= 1
        left += 1
    return [*needed, max(1, left)]


def column_at(sizes: Sequence[int], x: int) -> int:
    """Return the place of the column that a cell of a row belongs to; the first has the mark, too."""
    end = MARK_CELLS
    for at, size in enumerate(sizes):
        end += size + GAP
        if x < end:
            return at
    return len(sizes) - 1


def head_row(columns: Sequence[Column], sizes: Sequence[int], order: Order) -> Row:
    """Return the names of the columns, with an arrow at the one that sorts."""
    spans: list[Span] = [(" " * MARK_CELLS, DIM)]
    for at, (column, size) in enumerate(zip(columns, sizes, strict=True)):
        here = at == order.column
        name = column.name + (("↓" if order.down else "↑") if here else "")
        last = at == len(columns) - 1
        spans.append((crop(name, size) if last else crop(name, size).ljust(size + GAP), STRONG if here else DIM))
    return tuple(spans)


def entry_rows(entry: Entry, sizes: Sequence[int], *, chosen: bool, wraps: bool) -> list[Row]:
    """Return an entry as one row, or with the last column wrapped."""
    *fixed, (text, style) = entry.cells
    lines = (wrap(text, sizes[-1], MOST_ROWS) or [""]) if wraps else [crop(text.replace("\n", " "), sizes[-1])]
    before: list[Span] = [("▸" if chosen else " ", STRONG), (f"{entry.mark:<2}", style)]
    for (word, look), size in zip(fixed, sizes, strict=False):
        shown = crop(word, size)
        padded = shown + " " * (size - cell_len(shown) + GAP)
        before.append((padded, _bold(look) if chosen else look))
    margin: list[Span] = [(" " * (MARK_CELLS + sum(sizes[:-1]) + GAP * (len(sizes) - 1)), TEXT)]
    last = _bold(style) if chosen else style
    return [(*(margin if place else before), (line, last)) for place, line in enumerate(lines)]


def _bold(style: str) -> str:
    """Return the bold variant of a style; what is dim stays so."""
    return {TEXT: STRONG, STRONG: STRONG, DIM: DIM}.get(style) or strong(style.removesuffix(strong("")))


def in_view(height_of: Callable[[int], int], count: int, first: int, cursor: int, room: int) -> tuple[int, int]:
    """Return the first entry to draw and one past the last: the chosen one is in view, and no room is left."""
    if count == 0:
        return 0, 0
    first = max(0, min(first, cursor, count - 1))
    used = sum(height_of(at) for at in range(first, cursor + 1))
    while used > room and first < cursor:
        used -= height_of(first)
        first += 1
    last = cursor + 1
    while last < count and used + height_of(last) <= room:
        used += height_of(last)
        last += 1
    while first > 0 and used + height_of(first - 1) <= room:
        first -= 1
        used += height_of(first)
    return first, last


def whole_rows(entry: Entry, sizes: Sequence[int], width: int, limit: int, *, wraps: bool) -> list[Row]:
    """Return the whole text of the chosen entry, below the list; nothing where its row says it all."""
    texts = [text for text, _ in entry.cells]
    if wraps:
        cut = texts[-1:] if len(wrap(texts[-1], sizes[-1], MOST_ROWS + 1)) > MOST_ROWS else []
    else:
        cut = [text for text, size in zip(texts, sizes, strict=True) if cell_len(text) > size]
    said = "\n".join(text for text in dict.fromkeys([*cut, entry.whole]) if text and text not in entry.whole[:-1])
    if not said or limit < 2:
        return []
    return [BLANK, *(((f"   {line}", DIM),) for line in wrap(said, width - 6, limit - 1))]

"""Rows of styled text, and how to fit them to a width. Text is always plain: it is never read as markup."""

from __future__ import annotations

import functools
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from rich.cells import cell_len as _cell_len
from rich.cells import set_cell_size

Span: TypeAlias = tuple[str, str]
"""Text and the name of its style; see `tfmon.ui.render.style`."""
Row: TypeAlias = tuple[Span, ...]

TEXT = "text"
BLANK: Row = ()
LABEL_CELLS = 13
"""Cells of a name before the text about it."""


_measured = functools.lru_cache(maxsize=2_048)(_cell_len)


def cell_len(text: str) -> int:
    """Return how many cells of the terminal a text takes."""
    return len(text) if text.isascii() else _measured(text)


def cells(row: Iterable[Span]) -> int:
    """Return how many cells of the terminal a row takes."""
    total = 0
    for text, _ in row:
        total += len(text) if text.isascii() else _measured(text)
    return total


def crop(text: str, width: int) -> str:
    """Return the text, cut with an ellipsis if it is wider than `width` cells."""
    if cell_len(text) <= width:
        return text
    if width <= 0:
        return ""
    return set_cell_size(text, width - 1).rstrip() + "…"


def fit(row: Iterable[Span], width: int) -> Row:
    """Return the row cropped or padded to exactly `width` cells, without control characters."""
    return _fit(tuple(row), width)


@functools.lru_cache(maxsize=1_024)
def _fit(row: Row, width: int) -> Row:
    """Do it once: from one refresh to the next most rows stay as they are."""
    out: list[Span] = []
    left = width
    for raw, style in row:
        if left <= 0 or not raw:
            continue
        text = raw if raw.isprintable() else "".join(one if one.isprintable() else " " for one in raw)
        size = cell_len(text)
        if size > left:
            text = crop(text, left)
            size = left if text.endswith("…") else cell_len(text)
            text = set_cell_size(text, size)
        left -= size
        if out and out[-1][1] == style:
            out[-1] = (out[-1][0] + text, style)
        else:
            out.append((text, style))
    if left > 0:
        if out and out[-1][1] == TEXT:
            out[-1] = (out[-1][0] + " " * left, TEXT)
        else:
            out.append((" " * left, TEXT))
    return tuple(out)


def cut(row: Row, first: int, last: int) -> Row:
    """Return the cells of a row from the first to before the last; a wide character belongs to its first cell."""
    kept: list[Span] = []
    x = 0
    for text, style in row:
        if x >= last:
            break
        width = cell_len(text)
        if x + width > first:
            if width == len(text):
                text = text[max(0, first - x) : last - x]
            kept.append((text, style))
        x += width
    return tuple(kept)


def spread(left: Iterable[Span], right: Iterable[Span], width: int) -> Row:
    """Return one row with the left part at its left end and the right part, which has priority, at its right."""
    right = fit_natural(right, width)
    room = width - cells(right)
    return (*fit(left, room), *right)


def fit_natural(row: Iterable[Span], width: int) -> Row:
    """Return the row as it is, cropped only if it is wider than `width` cells."""
    row = tuple(row)
    return row if cells(row) <= width else fit(row, width)


_SHARE = re.compile(r"(\d) %")
NO_BREAK = "\u00a0"


def wrap(text: str, width: int, limit: int) -> list[str]:
    """Break text into at most `limit` lines of at most `width` cells; what is left over becomes an ellipsis."""
    return list(_wrap(text, width, limit))


@functools.lru_cache(maxsize=256)
def _wrap(text: str, width: int, limit: int) -> tuple[str, ...]:
    """Do it once: what is wrapped is the same from one refresh to the next."""
    if width <= 0 or limit <= 0 or not text:
        return ()
    lines: list[str] = []
    for part in text.splitlines():
        whole = _SHARE.sub(f"\\1{NO_BREAK}%", part)
        lines += textwrap.wrap(whole, width, break_on_hyphens=False) or [""]
    lines = [crop(line.replace(NO_BREAK, " "), width) for line in lines]
    if len(lines) > limit:
        lines = lines[:limit]
        lines[-1] = crop(lines[-1] + "…" if cell_len(lines[-1]) < width else lines[-1] + "……", width)
    return tuple(lines)


def entry(name: str, meaning: str, width: int, style: str) -> list[Row]:
    """Return a name and the text about it, wrapped beside it."""
    return beside((f"  {name:<{LABEL_CELLS}}", style), meaning, TEXT, min(100 + LABEL_CELLS, width - 4) + 2)


def beside(lead: Span, text: str, style: str, width: int, limit: int = 9) -> list[Row]:
    """Return a text in at most `limit` lines of at most `width` cells, beside what leads the first of them."""
    words, look = lead
    margin = (" " * cell_len(words), look)
    lines = wrap(text, max(10, width - cell_len(words)), limit)
    return [(margin if place else lead, (line, style)) for place, line in enumerate(lines)]


def indented(text: str, style: str, width: int, limit: int = 9) -> list[Row]:
    """Return a paragraph, two cells from either edge."""
    return beside(("  ", style), text, style, width - 2, limit)


def plain(rows: Sequence[Row]) -> list[str]:
    """Return rows as text, for where there is no screen."""
    return ["".join(text for text, _ in row).rstrip() for row in rows]

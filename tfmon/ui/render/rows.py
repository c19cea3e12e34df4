"""Rows of styled text. Text is never read as markup."""

from __future__ import annotations

import functools
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from rich.cells import cell_len, set_cell_size

Span: TypeAlias = tuple[str, str]
"""Text and the name of a style."""
Row: TypeAlias = tuple[Span, ...]

TEXT, DIM = "text", "dim"
BLANK: Row = ()
LABEL_CELLS = 13


def cells(row: Iterable[Span]) -> int:
    """Return the width of a row in terminal cells."""
    return sum(cell_len(text) for text, _ in row)


def crop(text: str, width: int) -> str:
    """Shorten a text to `width` cells, with an ellipsis."""
    if cell_len(text) <= width:
        return text
    if width <= 0:
        return ""
    return set_cell_size(text, width - 1).rstrip() + "…"


def fit(row: Iterable[Span], width: int) -> Row:
    """Crop or pad a row, and remove control characters."""
    return _fit(tuple(row), width)


@functools.lru_cache(maxsize=2_048)
def _fit(row: Row, width: int) -> Row:
    spans: list[Span] = []
    left = width
    for raw, style in row:
        text = raw if raw.isprintable() else "".join(char if char.isprintable() else " " for char in raw)
        text = text if cell_len(text) <= left else set_cell_size(crop(text, left), left)
        spans.append((text, style))
        left -= cell_len(text)
    return tuple((text, style) for text, style in (*spans, (" " * left, TEXT)) if text)


def spread(left: Iterable[Span], right: Iterable[Span], width: int) -> Row:
    """Return a row with parts at both ends; the right part has priority."""
    right = tuple(right)
    room = max(0, width - cells(right))
    return (*fit(left, room), *fit(right, width - room))


def meter(share: float, length: int, style: str) -> Row:
    """Return a bar filled up to a share."""
    filled = round(max(0.0, min(1.0, share)) * length)
    return ("▓" * filled, style), ("░" * (length - filled), DIM)


def stacked(parts: Iterable[tuple[float, str, str]], length: int) -> list[Span]:
    """Return a bar of parts, each with its percentage, character and style."""
    spans: list[Span] = []
    drawn, total = 0, 0.0
    for pct, character, style in parts:
        total += pct
        end = max(drawn, round(total / 100 * length))
        spans.append((character * (end - drawn), style))
        drawn = end
    return spans


_IN_NUMBER = re.compile(r"(?<=\d) (?=%|\d{3}\b)")
NO_BREAK = "\u00a0"


@functools.lru_cache(maxsize=1_024)
def wrap(text: str, width: int, limit: int) -> tuple[str, ...]:
    """Break a text into at most `limit` lines, with an ellipsis for the rest."""
    if width <= 0 or limit <= 0 or not text:
        return ()
    lines: list[str] = []
    for part in text.splitlines():
        whole = _IN_NUMBER.sub(NO_BREAK, part)
        lines += textwrap.wrap(whole, width, break_on_hyphens=False) or [""]
    lines = [crop(line.replace(NO_BREAK, " "), width) for line in lines]
    if len(lines) > limit:
        lines = lines[:limit]
        lines[-1] = crop(lines[-1] + "…" if cell_len(lines[-1]) < width else lines[-1] + "……", width)
    return tuple(lines)


def styled_lines(text: str, width: int, most: int = 9, style: str = TEXT, lead: str = "") -> list[Row]:
    """Wrap a text, with `lead` before each line."""
    return [((lead + line, style),) for line in wrap(text, max(1, width - len(lead)), most)]


def entry(name: str, meaning: str, width: int, style: str) -> list[Row]:
    """Return a name with a wrapped explanation beside it."""
    return beside((f"  {name:<{LABEL_CELLS}}", style), meaning, TEXT, min(100 + LABEL_CELLS, width - 4) + 2)


def section(heading: str, lines: Iterable[tuple[str, str]], width: int, style: str) -> list[Row]:
    """Return entries below a heading."""
    rows: list[Row] = [BLANK, ((f"  {heading}", "strong"),)]
    return rows + [row for name, text in lines for row in entry(name, text, width, style)]


def beside(lead: Span, text: str, style: str, width: int, limit: int = 9) -> list[Row]:
    """Wrap a text beside a lead."""
    lead_text, lead_style = lead
    margin = (" " * cell_len(lead_text), lead_style)
    lines = wrap(text, max(10, width - cell_len(lead_text)), limit)
    return [(margin if index else lead, (line, style)) for index, line in enumerate(lines)]


def plain(rows: Sequence[Row]) -> list[str]:
    """Return rows as plain text."""
    return ["".join(text for text, _ in row).rstrip() for row in rows]


_LEAST_NAME = 3


def fitting_name(names: Sequence[str], width: int) -> str:
    """Return the first name that fits, or a short one: "bat 16, pre off"."""
    if fitting := next((name for name in names if cell_len(name) <= width), ""):
        return fitting
    parts = [part.rpartition(" ") for part in names[-1].split(", ")]
    for most in range(max(len(name) for name, _, _ in parts), _LEAST_NAME - 1, -1):
        shortened = ", ".join(f"{name[:most].rstrip()} {value}".strip() for name, _, value in parts)
        if cell_len(shortened) <= width:
            return shortened
    return next(iter(wrap(", ".join(value for _, _, value in parts), width, 1)), "")


def fitting_device(name: str, width: int) -> str:
    """Return the words of a device name that fit, at least two, or empty."""
    parts = name.split()
    least = min(2, len(parts))
    while parts and len(" ".join(parts)) > width:
        parts.pop()
    return " ".join(parts) if len(parts) >= least else ""

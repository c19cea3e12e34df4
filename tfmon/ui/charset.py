"""Which characters the terminal can show, and how everything else is written with ASCII alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from rich.cells import cell_len

from tfmon.ui.rows import Row

Charset: TypeAlias = Literal["braille", "block", "ascii"]

_ASCII = str.maketrans(
    {
        "╭": "+", "╮": "+", "╰": "+", "╯": "+", "─": "-", "│": "|",
        "┏": "#", "┓": "#", "┗": "#", "┛": "#", "━": "=", "┃": "#",
        "┤": "|", "┴": "+", "┬": "v", "▓": "#", "░": ".", "█": "#", "■": "#", "□": ".", "▏": "_",
        "▒": "-", "▚": "%", "▞": "/", "═": "=", "≈": "~",
        "▸": ">", "▲": "^", "✓": "x", "✗": "!", "→": ">", "←": "<", "↑": "^", "↓": "v",
        "×": "x", "·": ".", "…": "~", "–": "-", "—": "-", "\u2019": "'", "“": '"', "”": '"',
    }
)  # fmt: skip


def charset(encoding: str, environ: Mapping[str, str]) -> Charset:
    """Return the richest set of characters that is safe: braille, block elements, or ASCII.

    A text console of the kernel has block elements in its font but no braille.
    """
    if encoding.lower().replace("-", "").replace("_", "") not in ("utf8", "utf8sig", "utf16", "utf32"):
        return "ascii"
    return "block" if environ.get("TERM") == "linux" else "braille"


def to_ascii(row: Row) -> Row:
    """Write a row with ASCII characters only, cell for cell."""
    return tuple((_plain(text), style) for text, style in row)


def _plain(text: str) -> str:
    if text.isascii():
        return text
    return "".join(one if one.isascii() else "?" * cell_len(one) for one in text.translate(_ASCII))

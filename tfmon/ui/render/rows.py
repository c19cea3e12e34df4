"""Rows of styled text, how to fit them to a width, and how the styles look. Text is never read as markup."""

from __future__ import annotations

import functools
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rich.cells import cell_len as _cell_len
from rich.cells import set_cell_size
from rich.style import Style

Span: TypeAlias = tuple[str, str]
"""Text and the name of its style."""
Row: TypeAlias = tuple[Span, ...]

TEXT, DIM = "text", "dim"
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
    right = tuple(right)
    if cells(right) > width:
        right = fit(right, width)
    room = width - cells(right)
    return (*fit(left, room), *right)


def meter(share: float, length: int, style: str) -> Row:
    """Return a bar of `length` cells that is filled up to a share, 0 to 1."""
    filled = round(max(0.0, min(1.0, share)) * length)
    return ("▓" * filled, style), ("░" * (length - filled), DIM)


_IN_NUMBER = re.compile(r"(?<=\d) (?=%|\d{3}\b)")
NO_BREAK = "\u00a0"


@functools.lru_cache(maxsize=256)
def wrap(text: str, width: int, limit: int) -> tuple[str, ...]:
    """Break text into at most `limit` lines of at most `width` cells; what is left over becomes an ellipsis."""
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


# ---------------- names that fit


_LEAST_NAME = 3
"""Cells of the shortest part of a knob's name that is worth showing."""


def fitting_name(names: Sequence[str], width: int) -> str:
    """Return the first name that fits, or the last one with its knobs cut: "bat 16, pre off"; or their values."""
    if fitting := next((name for name in names if cell_len(name) <= width), ""):
        return fitting
    parts = [part.rpartition(" ") for part in names[-1].split(", ")]
    for most in range(max(len(name) for name, _, _ in parts), _LEAST_NAME - 1, -1):
        shortened = ", ".join(f"{name[:most].rstrip()} {value}".strip() for name, _, value in parts)
        if cell_len(shortened) <= width:
            return shortened
    return whole_words(", ".join(value for _, _, value in parts), width)


def whole_words(text: str, width: int) -> str:
    """Return the words of a text that fit, with an ellipsis where some do not; a word is not cut unless alone."""
    return next(iter(wrap(text, width, 1)), "")


def fitting_device(name: str, width: int) -> str:
    """Return the words of a processor's name that fit; nothing rather than its maker alone."""
    words = name.split()
    least = min(2, len(words))
    while words and len(" ".join(words)) > width:
        words.pop()
    return " ".join(words) if len(words) >= least else ""


# ---------------- numbers drawn large, of half blocks


LARGE_ROWS = 3
"""Rows of a large figure. It is drawn with half blocks: a dot is half a cell high, about square."""
_DOTS = {
    "0": "### #.# #.# #.# ###",
    "1": ".#. ##. .#. .#. ###",
    "2": "### ..# ### #.. ###",
    "3": "### ..# ### ..# ###",
    "4": "#.# #.# ### ..# ..#",
    "5": "### #.. ### ..# ###",
    "6": "### #.. ### #.# ###",
    "7": "### ..# ..# ..# ..#",
    "8": "### #.# ### #.# ###",
    "9": "### #.# ### ..# ###",
    ".": ". . . . #",
    "-": "... ... ### ... ...",
    " ": ". . . . .",
}
_HALVES = {("#", "#"): "█", ("#", "."): "▀", (".", "#"): "▄", (".", "."): " "}


def large(text: str) -> tuple[str, str, str]:
    """Return three rows of equal width that show the text; it may contain digits, points, dashes and blanks."""
    rows = ["", "", ""]
    for place, character in enumerate(text):
        dots = _DOTS[character].split()
        dots.insert(0, "." * len(dots[0]))
        for y in range(LARGE_ROWS):
            cells = "".join(_HALVES[pair] for pair in zip(dots[2 * y], dots[2 * y + 1], strict=True))
            rows[y] += (" " if place else "") + cells
    return rows[0], rows[1], rows[2]


# ---------------- what the styles mean, and how they look in a theme. Colour is never the only cue


STRONG, KEY = "strong", "key"
WARN, TROUBLE = "warn", "trouble"
_DARK = ("#56b4e9", "#e69f00", "#3fc79a", "#d691b9")
_LIGHT = ("#0067a8", "#935000", "#00704f", "#934373")
_ANSI = ("cyan", "yellow", "green", "magenta")
"""Colours of the lanes in each kind of theme. The first two are told apart by colour-blind eyes, too.

Source: the pairs of Okabe and Ito, made lighter or darker until they can be read.
"""
_LEAST_CONTRAST = 3.0


def themes() -> list[str]:
    """Return the names of the themes that can be chosen."""
    from textual.theme import BUILTIN_THEMES

    return sorted(BUILTIN_THEMES)


def lane_style(index: int) -> str:
    """Return the name of a lane's accent."""
    return f"lane{index % len(_DARK)}"


def strong(style: str) -> str:
    """Return the name of the bold variant of a style."""
    return style + ".strong"


def banded(style: str, share: float) -> str:
    """Return the variant of a style for a load: bold from 75 % on. Source: the bands of nvitop for utilisation."""
    return faint(style) if share < 0.10 else strong(style) if share >= 0.75 else style


def faint(style: str) -> str:
    """Return the name of the subdued variant of a style."""
    return style + ".faint"


@dataclass(frozen=True, slots=True)
class Look:
    """What a theme gives: its ground and whether it is dark, or the terminal's own sixteen colours."""

    dark: bool = True
    ansi: bool = False
    foreground: str = "#e0e0e0"
    background: str = "#121212"


def palette(look: Look) -> dict[str, Style]:
    """Return the styles by name."""
    if look.ansi:
        accents, warn, trouble = _ANSI, "bright_yellow", "bright_red"
        text, dim, ground = Style(), Style(dim=True), Style()
    else:
        accents = _DARK if look.dark else _LIGHT
        warn, trouble = ("#f0d442", "#ff7a6e") if look.dark else ("#6e5600", "#b3261e")
        ground = Style(bgcolor=look.background)
        text = Style(color=look.foreground) + ground
        dim = Style(color=_quiet(look.foreground, look.background)) + ground
    styles = {
        TEXT: text,
        DIM: dim,
        STRONG: text + Style(bold=True),
        KEY: text + Style(bold=True),
        WARN: ground + Style(color=warn),
        strong(WARN): ground + Style(color=warn, bold=True),
        TROUBLE: ground + Style(color=trouble),
        strong(TROUBLE): ground + Style(color=trouble, bold=True),
    }
    for index, accent in enumerate(accents):
        name = lane_style(index)
        styles[name] = ground + Style(color=accent)
        styles[strong(name)] = ground + Style(color=accent, bold=True)
        faded = dim if look.ansi else ground + Style(color=_between(accent, look.background, 0.5))
        styles[faint(name)] = faded
    return styles


def _quiet(colour: str, ground: str) -> str:
    """Return a colour between text and ground that can still be read: a contrast of 3, where the theme allows."""
    for percent in range(42, 0, -6):
        mixed = _between(colour, ground, percent / 100)
        darker, lighter = sorted((_luminance(mixed), _luminance(ground)))
        if (lighter + 0.05) / (darker + 0.05) >= _LEAST_CONTRAST:
            return mixed
    return colour


def _luminance(colour: str) -> float:
    """Return the relative luminance of a colour. Source: WCAG 2.2, which makes the contrast ratio of two."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _between(colour: str, ground: str, share: float) -> str:
    """Mix a share of the ground into a colour; both are written #rrggbb."""
    pairs = [(int(colour[at : at + 2], 16), int(ground[at : at + 2], 16)) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(top + (bottom - top) * share):02x}" for top, bottom in pairs)


_ASCII = str.maketrans(
    {
        "╭": "+", "╮": "+", "╰": "+", "╯": "+", "─": "-", "│": "|",
        "┏": "#", "┓": "#", "┗": "#", "┛": "#", "━": "=", "┃": "#",
        "┤": "|", "└": "+", "┴": "+", "┬": "v", "▓": "#", "░": ".", "█": "#", "■": "#", "□": ".", "▏": "_",
        "▁": "_", "▂": "_", "▃": "-", "▄": "-", "▅": "=", "▆": "=", "▇": "#",
        "▒": "-", "▚": "%", "▞": "/", "═": "=", "≈": "~", "≠": "*",
        "▸": ">", "▲": "^", "✓": "x", "✗": "!", "→": ">", "←": "<", "↑": "^", "↓": "v",
        "×": "x", "°": " ", "▪": "*", "·": ".", "…": "~", "–": "-", "—": "-", "\u2019": "'", "“": '"', "”": '"',
    }
)  # fmt: skip


def to_ascii(row: Row) -> Row:
    """Write a row with ASCII characters only, cell for cell."""
    return tuple((_plain(text), style) for text, style in row)


def _plain(text: str) -> str:
    if text.isascii():
        return text
    return "".join(one if one.isascii() else "?" * cell_len(one) for one in text.translate(_ASCII))

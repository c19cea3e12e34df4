"""The styles and their colours. Colour is never the only cue."""

from __future__ import annotations

from tfmon.ui.render.rows import cell_len

STRONG, KEY = "strong", "key"
WARN, TROUBLE = "warn", "trouble"
LINK = "@"
"""Separator of a style and the action of a click."""
_DARK = ("#56b4e9", "#e69f00", "#3fc79a", "#d691b9")
_LIGHT = ("#0067a8", "#935000", "#00704f", "#934373")
_ANSI = ("ansi_cyan", "ansi_yellow", "ansi_green", "ansi_magenta")
"""Lane colours. Source: Okabe and Ito, adjusted for contrast."""
_WARNINGS = {
    _DARK: ("#f0d442", "#ff7a6e"),
    _LIGHT: ("#6e5600", "#b3261e"),
    _ANSI: ("ansi_bright_yellow", "ansi_bright_red"),
}


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
    """Return the style for a load. Source: the bands of nvitop."""
    return faint(style) if share < 0.10 else strong(style) if share >= 0.75 else style


def faint(style: str) -> str:
    """Return the name of the subdued variant of a style."""
    return style + ".faint"


def link(style: str, action: str) -> str:
    """Return a style whose text runs an action when it is clicked."""
    return f"{style}{LINK}{'' if action.startswith('app.') else 'screen.'}{action}"


def theme_variables(*, dark: bool, ansi: bool) -> dict[str, str]:
    """Return the colours of lanes and warnings for a theme."""
    accents = _ANSI if ansi else _DARK if dark else _LIGHT
    names = (*(f"lane-{number}" for number in range(len(accents))), "warn", "trouble")
    return dict(zip(names, accents + _WARNINGS[accents], strict=True))


_ASCII = str.maketrans(
    {
        "╭": "+", "╮": "+", "╰": "+", "╯": "+", "─": "-", "│": "|",
        "┏": "#", "┓": "#", "┗": "#", "┛": "#", "━": "=", "┃": "#",
        "┤": "|", "├": "|", "●": "o", "└": "+", "┴": "+", "┬": "v", "▓": "@", "░": ".", "█": "#", "■": "#",
        "□": ".", "▏": "_", "▁": "_", "▂": "_", "▃": "-", "▄": "-", "▅": "=", "▆": "=", "▇": "#",
        "▒": "-", "▚": "%", "▞": "/", "═": "=", "≈": "~", "≠": "*",
        "▸": ">", "▲": "^", "✓": "x", "✗": "!", "→": ">", "←": "<", "↑": "^", "↓": "v",
        "×": "x", "°": " ", "▪": "*", "·": ".", "…": "~", "–": "-", "—": "-", "\u2019": "'", "“": '"', "”": '"',
    }
)  # fmt: skip


_BRAILLE_ROWS = (0xC0, 0x24, 0x12, 0x09)
_HEIGHTS = {0x2800 + dots: sum(bool(dots & row) for row in _BRAILLE_ROWS) for dots in range(256)}
_BLOCKS = {cell: " ▂▄▆█"[height] for cell, height in _HEIGHTS.items()}
_ASCII |= {cell: " .:##"[height] for cell, height in _HEIGHTS.items()}


def to_blocks(text: str) -> str:
    """Return a text without braille, for the console of Linux."""
    return text.translate(_BLOCKS)


def to_ascii(text: str) -> str:
    """Return a text of the same width in ASCII."""
    if text.isascii():
        return text
    return "".join(one if one.isascii() else "?" * cell_len(one) for one in text.translate(_ASCII))

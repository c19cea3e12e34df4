"""Styles and colours. Colour is never the only cue."""

from __future__ import annotations

from rich.cells import cell_len

STRONG, WARN, TROUBLE = "strong", "warn", "trouble"
LINK = "@"
"""Separates a style and an action."""
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
    """Return the names of all themes."""
    from textual.theme import BUILTIN_THEMES

    return sorted(BUILTIN_THEMES)


def lane_style(index: int) -> str:
    """Return a lane's accent style."""
    return f"lane{index % len(_DARK)}"


def strong(style: str) -> str:
    """Return the bold variant of a style."""
    return style + ".strong"


def banded(style: str, share: float) -> str:
    """Return the style for a load. Source: the bands of nvitop."""
    return faint(style) if share < 0.10 else strong(style) if share >= 0.75 else style


def faint(style: str) -> str:
    """Return the subdued variant of a style."""
    return style + ".faint"


def link(style: str, action: str) -> str:
    """Return a style whose text runs an action when clicked."""
    target = action if action.startswith("app.") else f"screen.{action}"
    return f"{style}{LINK}{target}" if action else style


def theme_variables(*, dark: bool, ansi: bool) -> dict[str, str]:
    """Return a theme's colours for lanes and warnings."""
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
    """Replace braille, which Linux's console lacks."""
    return text.translate(_BLOCKS)


def to_ascii(text: str) -> str:
    """Translate a text to ASCII of the same width."""
    if text.isascii():
        return text
    return "".join(
        character if character.isascii() else "?" * cell_len(character) for character in text.translate(_ASCII)
    )

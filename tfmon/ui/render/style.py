"""What the styles mean and how they look in a theme. Colour is never the only cue."""

from __future__ import annotations

from dataclasses import dataclass

from rich.style import Style

from tfmon.ui.render.rows import DIM, TEXT, Row, cell_len

STRONG, KEY = "strong", "key"
WARN, TROUBLE = "warn", "trouble"
_DARK = ("#56b4e9", "#e69f00", "#3fc79a", "#d691b9")
_LIGHT = ("#0067a8", "#935000", "#00704f", "#934373")
_ANSI = ("cyan", "yellow", "green", "magenta")
"""Lane colours, the first two distinct for colour-blind users. Source: Okabe and Ito, adjusted for contrast."""
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
    """Return a colour between text and ground with a contrast of 3, if the theme allows it."""
    for percent in range(42, 0, -6):
        mixed = _between(colour, ground, percent / 100)
        darker, lighter = sorted((_luminance(mixed), _luminance(ground)))
        if (lighter + 0.05) / (darker + 0.05) >= _LEAST_CONTRAST:
            return mixed
    return colour


def _luminance(colour: str) -> float:
    """Return the relative luminance of a colour. Source: WCAG 2.2."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _between(colour: str, ground: str, share: float) -> str:
    pairs = [(int(colour[at : at + 2], 16), int(ground[at : at + 2], 16)) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(top + (bottom - top) * share):02x}" for top, bottom in pairs)


_ASCII = str.maketrans(
    {
        "╭": "+", "╮": "+", "╰": "+", "╯": "+", "─": "-", "│": "|",
        "┏": "#", "┓": "#", "┗": "#", "┛": "#", "━": "=", "┃": "#",
        "┤": "|", "└": "+", "┴": "+", "┬": "v", "▓": "@", "░": ".", "█": "#", "■": "#", "□": ".", "▏": "_",
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

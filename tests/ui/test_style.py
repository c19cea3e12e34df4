"""The colours of the lanes can be read on every theme."""

from __future__ import annotations

from textual.color import Color
from textual.theme import BUILTIN_THEMES

from tfmon.ui.render.style import DIM, TROUBLE, WARN, Look, lane_style, palette, themes

LEAST_CONTRAST, LEAST_CONTRAST_DIM = 4.5, 3.0
"""What WCAG 2.2 asks for: of text, and of what only helps to find one's way."""

COLOURED = sorted(name for name, theme in BUILTIN_THEMES.items() if not theme.ansi)


def linear(colour: str) -> list[float]:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted(
        sum(a * b for a, b in zip((0.2126, 0.7152, 0.0722), linear(c), strict=True)) for c in (one, other)
    )
    return (lighter + 0.05) / (darker + 0.05)


def look_of(name: str) -> Look:
    theme = BUILTIN_THEMES[name]
    ground = theme.to_color_system().generate()
    foreground, background = (Color.parse(ground[part]).hex6.lower() for part in ("foreground", "background"))
    return Look(theme.dark, theme.ansi, foreground, background)


def colour_of(style) -> str:
    return style.color.get_truecolor().hex


def test_accents_and_warnings_can_be_read_on_every_theme():
    for name in COLOURED:
        look = look_of(name)
        styles = palette(look)
        for part in (*map(lane_style, range(4)), WARN, TROUBLE):
            assert contrast(colour_of(styles[part]), look.background) >= LEAST_CONTRAST, (name, part)
        assert contrast(colour_of(styles[DIM]), look.background) >= LEAST_CONTRAST_DIM, name


def test_every_theme_of_textual_can_be_chosen():
    assert themes() == sorted(BUILTIN_THEMES)


def test_the_sixteen_colours_of_the_terminal_are_used_as_they_are():
    styles = palette(Look(ansi=True))
    assert styles[lane_style(0)].color.name == "cyan" and styles[lane_style(0)].bgcolor is None

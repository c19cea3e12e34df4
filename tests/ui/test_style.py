"""The colours of the lanes can be read on every theme, and told apart by colour-blind eyes."""

from __future__ import annotations

from itertools import product

from textual.color import Color
from textual.theme import BUILTIN_THEMES

from tfmon.ui.render.style import ACCENTS, DIM, TROUBLE, WARN, Look, lane_style, palette, themes

LEAST_CONTRAST, LEAST_CONTRAST_DIM = 4.5, 3.0
"""What WCAG 2.2 asks for: of text, and of what only helps to find one's way."""
LEAST_DIFFERENCE = 25
"""In CIELAB; two colours side by side are told apart from 2.3 on."""
SEEN = {
    "normal": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
"""What these eyes make of linear RGB. Source: Machado, Oliveira, Fernandes (2009), severity 1.0."""

COLOURED = sorted(name for name, theme in BUILTIN_THEMES.items() if not theme.ansi)


def linear(colour: str) -> list[float]:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted(
        sum(a * b for a, b in zip((0.2126, 0.7152, 0.0722), linear(c), strict=True)) for c in (one, other)
    )
    return (lighter + 0.05) / (darker + 0.05)


def lab(rgb: list[float]) -> tuple[float, float, float]:
    to_xyz = ((0.4339, 0.3763, 0.1899), (0.2126, 0.7152, 0.0722), (0.0177, 0.1094, 0.8730))
    x, y, z = (sum(a * b for a, b in zip(row, rgb, strict=True)) for row in to_xyz)
    x, y, z = (part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116 for part in (x, y, z))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def difference(one: str, other: str, eyes: str) -> float:
    seen = []
    for colour in (one, other):
        rgb = linear(colour)
        seen.append(
            lab([max(0.0, min(1.0, sum(a * b for a, b in zip(row, rgb, strict=True)))) for row in SEEN[eyes]])
        )
    return sum((a - b) ** 2 for a, b in zip(*seen, strict=True)) ** 0.5


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


def test_the_first_two_lanes_are_told_apart_by_all_eyes():
    for kind, eyes in product(("dark", "light"), SEEN):
        first, second, *_ = getattr(ACCENTS, kind)
        assert difference(first, second, eyes) >= LEAST_DIFFERENCE, (kind, eyes)


def test_every_theme_of_textual_can_be_chosen():
    assert themes() == sorted(BUILTIN_THEMES)


def test_the_sixteen_colours_of_the_terminal_are_used_as_they_are():
    styles = palette(Look(ansi=True))
    assert styles[lane_style(0)].color.name == "cyan" and styles[lane_style(0)].bgcolor is None

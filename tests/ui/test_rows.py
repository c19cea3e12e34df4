"""Rows are as wide as they should be; the colours of the lanes can be read on every theme."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from textual.color import Color
from textual.theme import BUILTIN_THEMES

from tfmon.ui.canvas import changes
from tfmon.ui.render.rows import cells, crop, fit, large, spread, wrap
from tfmon.ui.render.style import DIM, TROUBLE, WARN, Look, lane_style, palette, themes, to_ascii
from tfmon.units import charset

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@given(st.lists(st.tuples(texts, st.sampled_from(["text", "dim"])), max_size=5), st.integers(0, 40))
def test_a_fitted_row_is_exactly_as_wide_as_asked_and_printable(row, width):
    fitted = fit(row, width)
    assert cells(fitted) == width
    assert all(text.isprintable() for text, _ in fitted)


@given(texts, st.integers(1, 40))
def test_cropped_text_never_exceeds_its_width(text, width):
    assert cells([(crop(text, width), "")]) <= width


def test_what_is_left_out_is_marked_and_the_right_part_has_priority():
    assert [crop("prefetch", width) for width in (8, 5, 0)] == ["prefetch", "pref…", ""]
    assert wrap("one two three four", 9, 2) == ["one two", "three…"]
    assert wrap("one two", 9, 2) == ["one two"]
    assert wrap("of 64 000 and 5 %", 6, 4) == ["of", "64 000", "and", "5 %"], "no number is broken"
    row = spread([("a long left part", "text")], [("right", "dim")], 10)
    assert "".join(text for text, _ in row) == "a lo…right"


@given(
    st.text(st.characters(categories=["L", "Zs"], max_codepoint=0x24F), max_size=200),
    st.integers(4, 40),
    st.integers(1, 6),
)
def test_wrapped_text_keeps_to_its_lines_and_width(text, width, limit):
    lines = wrap(text, width, limit)
    assert len(lines) <= limit
    assert all(cells([(line, "")]) <= width for line in lines)


def test_only_changed_cells_are_runs_and_near_ones_are_merged():
    before = (("abcdefghijklmnopqrstuvwxyz", "text"),)
    after = (("abXdeYghijklmnopqrstuvwxyZ", "text"),)
    assert changes(before, after) == ([], [(2, 6), (25, 26)])
    assert changes((("ab", "text"),), (("a", "text"), ("b", "dim"))) == ([], [(1, 2)])
    assert changes((("日本 1", "text"),), (("日本 2", "text"),)) == ([], [(0, 6)]), "wide characters make one run"


def test_the_locale_settles_the_characters_and_ascii_keeps_every_cell_in_place():
    assert charset("utf-8", {"TERM": "xterm-256color"}) == charset("UTF8", {}) == "braille"
    assert charset("utf-8", {"TERM": "linux"}) == "block"
    assert charset("ascii", {"TERM": "xterm"}) == charset("iso-8859-1", {}) == charset("", {}) == "ascii"
    assert to_ascii((("╭─ 3.2× → … ▓░ é日", "text"),)) == (("+- 3.2x > ~ #. ???", "text"),)


def test_large_figures_are_three_rows_of_one_width_and_digits_differ():
    rows = large("7 663")
    assert len({len(row) for row in rows}) == 1
    assert len({large(digit) for digit in "0123456789"}) == 10
    assert {len(large(digit)[0]) for digit in "0123456789"} == {3}, "digits do not wander"
    assert large("1") == (" ▄ ", "▀█ ", "▄█▄")


# ---------------------------------------------------------------- colours

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

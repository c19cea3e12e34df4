"""Whatever the size: the screen fills the terminal, rows are as wide as asked, colours can be read."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from hypothesis import strategies as st
from support.ui import CPU_MACHINE, Demo, racing_demo
from textual.color import Color
from textual.geometry import Size
from textual.theme import BUILTIN_THEMES

from tfmon.analysis.analysis import analyse
from tfmon.model.spec import LaneSpec
from tfmon.ui.canvas import Canvas, changes
from tfmon.ui.render.layout import MIN_PANE_HEIGHT, MIN_PANE_WIDTH, Rect, arrange, keys_row
from tfmon.ui.render.race import draw
from tfmon.ui.render.rows import DIM, cells, crop, fit, large, spread, wrap
from tfmon.ui.render.style import TROUBLE, WARN, Look, lane_style, palette, themes, to_ascii
from tfmon.ui.screens.page import SCROLLBAR_CELLS
from tfmon.ui.source import Display
from tfmon.units import charset

from .pilot import app_of, press, until

SIZES = [(1, 1), (24, 2), (41, 14), (60, 16), (80, 24), (250, 70)]
PAGES = ["question_mark", "k", "l", "c", "E", "d", "enter"]


def assert_apart_and_inside(rects: list[Rect], width: int, height: int) -> None:
    for rect in rects:
        assert rect.x >= 0 and rect.y >= 0 and rect.width > 0
        assert rect.x + rect.width <= width and rect.y + rect.height <= height, (width, height, rect)
    for one, other in combinations(rects, 2):
        apart = one.x >= other.x + other.width or other.x >= one.x + one.width
        assert apart or one.y >= other.y + other.height or other.y >= one.y + one.height, (one, other)


@given(some.integers(1, 400), some.integers(1, 150), some.integers(0, 16), some.integers(0, 15))
@settings(max_examples=150)
def test_the_parts_fill_the_screen_and_do_not_overlap(width, height, lanes, focused):
    focused = min(focused, max(0, lanes - 1))
    layout = arrange(width, height, lanes, focused)
    panes = [place.rect for place in layout.panes]
    parts = [layout.tabs, layout.header, layout.verdict, layout.status, layout.keys, *panes]
    assert_apart_and_inside([part for part in parts if part.height], width, height)
    if panes:
        assert focused in [place.lane for place in layout.panes]
        assert min(pane.width for pane in panes) >= MIN_PANE_WIDTH
        assert min(pane.height for pane in panes) >= MIN_PANE_HEIGHT
        assert max(pane.x + pane.width for pane in panes) == width
        assert layout.verdict.y == max(pane.y + pane.height for pane in panes)
    shown = {place.lane for page in range(lanes) for place in arrange(width, height, lanes, page).panes}
    assert shown in (set(), set(range(lanes))), "every lane is on some page"


@pytest.mark.parametrize(
    ("width", "height", "lanes", "kind", "visible"),
    [
        (80, 24, 2, "panes", 2),
        (120, 36, 3, "panes", 3),
        (200, 50, 8, "panes", 8),
        (80, 24, 8, "panes", 2),
        (60, 16, 2, "lines", 0),
        (60, 18, 2, "panes", 1),
        (60, 12, 2, "lines", 0),
        (30, 24, 2, "lines", 0),
        (24, 1, 2, "lines", 0),
        (10, 3, 2, "tiny", 0),
        (23, 50, 2, "tiny", 0),
    ],
)
def test_the_size_settles_the_kind_and_the_lanes_in_view(width, height, lanes, kind, visible):
    layout = arrange(width, height, lanes)
    assert layout.kind == kind
    assert len(layout.panes) == visible


def demo_of(lanes: int, phases: list[str]) -> Demo:
    demo = Demo([LaneSpec("cpu", {"batch_size": 2**power}) for power in range(lanes)], CPU_MACHINE).go()
    demo.race(1, [1_000, 20, 300_000])
    for name, phase in zip(demo.names, phases, strict=False):
        if phase == "failed":
            demo.fail(name, "an error with a very long explanation " * 5)
        else:
            demo.enter(name, phase)
    return demo


@given(
    width=some.integers(1, 320),
    height=some.integers(1, 100),
    lanes=some.integers(0, 9),
    phases=some.lists(some.sampled_from(["importing", "racing", "paused", "done", "failed"]), max_size=9),
    message=some.text(max_size=200),
    charset=some.sampled_from(["braille", "block", "ascii"]),
    focused=some.integers(0, 9),
)
def test_the_race_fills_the_terminal_exactly(width, height, lanes, phases, message, charset, focused):
    demo = demo_of(lanes, phases)
    analysis = analyse(demo.session.snapshot())
    name = demo.names[focused] if focused < lanes else None
    until_ns = analysis.snapshot.at_ns + 1
    view = Display(focused=name, charset=charset, message=message, message_until_ns=until_ns, readonly=True)
    page = draw(analysis, view, width, height)
    assert len(page.rows) == height
    assert {cells(row) for row in page.rows} == {width}
    assert charset != "ascii" or all(text.isascii() for row in page.rows for text, _ in row)
    assert_apart_and_inside([zone.rect for zone in page.zones], width, height)


def test_two_knobs_that_are_requested_leave_room_for_the_batch_at_80_columns():
    demo = Demo()
    for lane, batch, prefetch in zip(demo.names, (1_024, 2_048), (1, "auto"), strict=True):
        demo.build(lane)
        demo.controls.set_knob(lane, "batch_size", batch)
        demo.controls.set_knob(lane, "prefetch", prefetch)
    row, _ = keys_row(demo.session.snapshot(), Display(), 80, 0)
    shown = "".join(text for text, _ in row).split()
    assert "b/B" in shown and "requested" in shown and "help" in shown and "quit" in shown


async def test_every_page_survives_every_size(monkeypatch):
    app = app_of(racing_demo())

    def is_full(width: int, height: int) -> bool:
        canvases = app.screen.query(Canvas)
        return {cells(row) for canvas in canvases for row in canvas._rows} <= {width, width - SCROLLBAR_CELLS}

    async with app.run_test(size=(120, 36)) as pilot:
        for key in (None, *PAGES):
            if key:
                await press(pilot, key)
            for size in SIZES:
                with monkeypatch.context() as patched:  # quicker than that Textual resizes everything
                    patched.setattr(type(app), "size", Size(*size))
                    app.screen.redraw()
                assert is_full(*size), (key, size)
            await press(pilot, "escape")
        for size in SIZES[::3]:
            await pilot.resize_terminal(*size)
            await until(pilot, lambda size=size: is_full(*size))


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@given(st.lists(st.tuples(texts, st.sampled_from(["text", "dim"])), max_size=5), st.integers(0, 40))
def test_a_fitted_row_is_exactly_as_wide_as_asked_and_printable(row, width):
    fitted = fit(row, width)
    assert cells(fitted) == width
    assert all(text.isprintable() for text, _ in fitted)


def test_what_is_left_out_is_marked_and_the_right_part_has_priority():
    assert [crop("prefetch", width) for width in (8, 5, 0)] == ["prefetch", "pref…", ""]
    assert wrap("one two three four", 9, 2) == ("one two", "three…")
    assert wrap("one two", 9, 2) == ("one two",)
    assert wrap("of 64 000 and 5 %", 6, 4) == ("of", "64 000", "and", "5 %"), "no number is broken"
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
    assert charset("utf-8", {"LC_ALL": "C"}) == charset("utf-8", {"LC_ALL": "", "LANG": "POSIX"}) == "ascii"
    assert charset("utf-8", {"LC_ALL": "C.UTF-8", "LANG": "C"}) == "braille"
    parts = to_ascii((("█▚▓▒▞═", "text"),))[0][0]
    assert len(set(parts)) == len(parts), "the parts of the time of a step differ"
    assert charset("ascii", {"TERM": "xterm"}) == charset("iso-8859-1", {}) == charset("", {}) == "ascii"
    assert to_ascii((("╭─ 3.2× → … ▓░ é日", "text"),)) == (("+- 3.2x > ~ @. ???", "text"),)


def test_large_figures_are_three_rows_of_one_width_and_digits_differ():
    rows = large("7 663")
    assert len({len(row) for row in rows}) == 1
    assert len({large(digit) for digit in "0123456789"}) == 10
    assert {len(large(digit)[0]) for digit in "0123456789"} == {3}, "digits do not wander"
    assert large("1") == (" ▄ ", "▀█ ", "▄█▄")


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

"""Whatever the size: the screen fills the terminal, rows are as wide as asked, colours can be read."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from hypothesis import strategies as st
from support.ui import CPU_MACHINE, Demo, racing_demo
from textual.geometry import Size
from textual.theme import BUILTIN_THEMES

from tfmon.analysis.analysis import analyse
from tfmon.model.spec import LaneSpec
from tfmon.ui.lines import Lines
from tfmon.ui.render.race_frame import draw
from tfmon.ui.render.rows import DIM, cells, crop, fit, spread, wrap
from tfmon.ui.render.style import TROUBLE, WARN, lane_style, to_ascii
from tfmon.ui.screens.race_screen import Pane
from tfmon.ui.screens.text_pages import SCROLLBAR_CELLS
from tfmon.ui.source import Display
from tfmon.units import charset

from .pilot import app_of, frame, press, rows_of, until

SIZES = [(1, 1), (24, 2), (41, 14), (60, 16), (80, 24), (250, 70)]
PAGES = ["question_mark", "k", "l", "c", "E", "d", "enter"]


@pytest.mark.parametrize(
    ("width", "height", "lanes", "panes"),
    [(80, 24, 2, 2), (120, 36, 3, 3), (200, 50, 8, 8), (80, 24, 8, 0), (60, 18, 2, 0), (50, 24, 1, 1),
     (30, 24, 1, 0)],
)  # fmt: skip
def test_the_size_settles_whether_lanes_are_panes_or_a_table(width, height, lanes, panes):
    shown = frame(demo_of(lanes, []), width, height)
    assert len(shown.panes) == panes


def demo_of(lanes: int, phases: list[str]) -> Demo:
    demo = Demo([LaneSpec("cpu", {"batch_size": 2**power}) for power in range(lanes)], CPU_MACHINE).go()
    demo.race(1, [1_000, 20, 300_000])
    for name, phase in zip(demo.names, phases, strict=False):
        if phase == "failed":
            demo.fail(name, "an error with a very long explanation " * 5)
        else:
            demo.enter(name, phase)
    return demo


@settings(max_examples=25)
@given(
    width=some.integers(1, 320),
    height=some.integers(1, 100),
    lanes=some.integers(0, 9),
    phases=some.lists(some.sampled_from(["importing", "racing", "paused", "done", "failed"]), max_size=9),
    message=some.text(max_size=200),
    focused=some.integers(0, 9),
)
def test_the_race_fills_the_terminal_exactly(width, height, lanes, phases, message, focused):
    demo = demo_of(lanes, phases)
    name = demo.names[focused] if focused < lanes else None
    rows = rows_of(frame(demo, width, height, focused=name, message=message, readonly=True))
    assert len(rows) == height
    assert {cells(row) for row in rows} == {width}


def test_a_note_that_comes_and_goes_does_not_move_the_panes():
    demo = demo_of(2, [])
    analysis = analyse(demo.session.snapshot())
    first = draw(analysis, Display(), 120, 36)
    rows = first.verdict
    later = draw(analysis, Display(verdict=(120, 36, rows + 1)), 120, 36)
    assert later.verdict == rows + 1 and len(later.panes[0]) == len(first.panes[0]) - 1
    resized = draw(analysis, Display(verdict=(80, 36, rows + 1)), 120, 36)
    assert resized.verdict == rows, "of another size"


async def test_every_page_survives_every_size(monkeypatch, app, pilot):
    def is_full(width: int, height: int) -> bool:
        lines = [one for one in app.screen.query(Lines) if not isinstance(one, Pane)]
        return {cells(row) for line in lines for row in line.rows} <= {width, width - SCROLLBAR_CELLS}

    for key in (None, *PAGES):
        if key:
            await press(pilot, key)
        for size in SIZES:
            with monkeypatch.context() as patched:  # quicker than that Textual resizes everything
                patched.setattr(type(app), "size", Size(*size))
                app.screen.redraw()
            assert is_full(*size), (key, size)
        await press(pilot, "escape")


@pytest.mark.parametrize("size", [(24, 2), (80, 24), (121, 37), (203, 51)])
async def test_every_part_has_the_size_for_which_its_rows_were_drawn(size):
    demo = demo_of(4, [])
    app = app_of(demo)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.resize_terminal(*size)

        def fits() -> bool:
            shown = [one for one in app.screen.query(Lines) if one.display and one.rows]
            drawn = {(len(one.rows), *{cells(row) for row in one.rows}) for one in shown}
            return drawn == {(one.size.height, one.size.width) for one in shown}

        await until(pilot, fits)
        assert sum(one.region.area for one in app.screen.query(Lines) if one.display) == size[0] * size[1]


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


def test_the_locale_settles_the_characters_and_ascii_keeps_every_cell_in_place():
    assert charset("utf-8", {"TERM": "xterm-256color"}) == charset("UTF8", {}) == "braille"
    assert charset("utf-8", {"TERM": "linux"}) == "block"
    assert charset("utf-8", {"LC_ALL": "C"}) == charset("utf-8", {"LC_ALL": "", "LANG": "POSIX"}) == "ascii"
    assert charset("utf-8", {"LC_ALL": "C.UTF-8", "LANG": "C"}) == "braille"
    parts = to_ascii("█▚▓▒▞═")
    assert len(set(parts)) == len(parts), "the parts of the time of a step differ"
    assert charset("ascii", {"TERM": "xterm"}) == charset("iso-8859-1", {}) == charset("", {}) == "ascii"
    assert to_ascii("╭─ 3.2× → … ▓░ é日") == "+- 3.2x > ~ @. ???"


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


def colour_of(style) -> str:
    return style.color.get_truecolor().hex


@pytest.mark.parametrize("pilot", [(80, 24)], indirect=True)
async def test_accents_and_warnings_can_be_read_on_every_theme(app, pilot):
    for name in COLOURED:
        app.theme = name
        await pilot.pause()
        style_of = app.screen.style_of
        ground = style_of("text").bgcolor.get_truecolor().hex
        for part in ("text", *map(lane_style, range(4)), WARN, TROUBLE):
            assert contrast(colour_of(style_of(part)), ground) >= LEAST_CONTRAST, (name, part)
        assert contrast(colour_of(style_of(DIM)), ground) >= LEAST_CONTRAST_DIM, name


async def test_the_sixteen_colours_of_the_terminal_are_used_as_they_are():
    app = app_of(racing_demo(), theme="ansi-dark")
    async with app.run_test(size=(80, 24)):
        lane, dim = (app.screen.style_of(name) for name in (lane_style(0), DIM))
        assert lane.color.number == 6 and dim.dim
        assert all(style.bgcolor.is_default for style in (lane, dim))

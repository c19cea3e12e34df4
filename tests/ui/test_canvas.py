"""What is written to the terminal, read back by a terminal emulator: it shows what it should, in few bytes."""

from __future__ import annotations

import random

import pyte
from hypothesis import given
from hypothesis import strategies as st
from rich.color import ColorSystem
from rich.style import Style
from support.ui import Demo, racing_demo
from textual._compositor import CompositorUpdate

from tfmon.ui.app import MonitorApp
from tfmon.ui.canvas import change, repaint, update
from tfmon.ui.render.rows import cut, fit
from tfmon.ui.textual_compat import text_of

from .pilot import app_of, press, until

STYLES = {
    "text": Style(color="#e0e0e0", bgcolor="#121212"),
    "strong": Style(color="#e0e0e0", bgcolor="#121212", bold=True),
    "lane": Style(color="#56b4e9", bgcolor="#121212"),
    "plain": Style(),
    "dim": Style(dim=True),
    "turned": Style(color="red", reverse=True),
}
WIDTH = 12
spans = st.lists(st.tuples(st.text("ab ─8", max_size=6), st.sampled_from(sorted(STYLES))), max_size=4)
screens = st.lists(spans.map(lambda row: fit(row, WIDTH)), min_size=3, max_size=3)


def all_of(rows):
    return [(y, 0, WIDTH) for y in range(len(rows))]


def terminal(*written: str):
    screen = pyte.Screen(WIDTH, 3)
    stream = pyte.Stream(screen)
    for text in written:
        stream.feed(text)
    return [[screen.buffer[y][x] for x in range(WIDTH)] for y in range(3)]


@given(screens, screens, st.sampled_from([ColorSystem.TRUECOLOR, ColorSystem.EIGHT_BIT, ColorSystem.STANDARD]))
def test_the_changed_cells_make_the_old_screen_the_new_one(before, after, colours):
    at_first = repaint(before, all_of(before), STYLES, colours)
    anew = terminal(repaint(after, all_of(after), STYLES, colours))
    assert terminal(at_first, update(before, after, STYLES, colours)) == anew


@given(st.text("⣀⣤⣿ ", min_size=40, max_size=90), st.text("⣀⣤⣿ ", min_size=1, max_size=3), st.integers(0, 20))
def test_a_chart_that_goes_on_is_moved_and_only_its_new_end_is_written(past, news, margin):
    def drawn(values):
        return [
            ((" " * margin + "│", "dim"), (values, "lane"), ("│right of it" + "x" * (110 - len(past)), "text"))
        ]

    def shown(*written):
        screen = pyte.Screen(130 + margin, 1)
        stream = pyte.Stream(screen)
        for text in written:
            stream.feed(text)
        return [screen.buffer[0][x] for x in range(130 + margin)]

    before, after = drawn(past), drawn(past[len(news) :] + news)
    at_first = repaint(before, [(0, 0, 130)], STYLES, ColorSystem.TRUECOLOR)
    written = update(before, after, STYLES, ColorSystem.TRUECOLOR)
    assert shown(at_first, written) == shown(repaint(after, [(0, 0, 130)], STYLES, ColorSystem.TRUECOLOR))
    if len(news) == 1:
        assert len(written) <= 90


def test_without_colours_only_text_is_written_and_without_runs_nothing():
    rows = [(("ab", "lane"), ("c", "strong"))]
    assert repaint(rows, [(0, 1, 3)], STYLES, None) == "\x1b[1;2Hbc\x1b[0m"
    assert repaint(rows, [], STYLES, ColorSystem.TRUECOLOR) == ""


def test_only_what_differs_is_written():
    assert change(STYLES["text"], STYLES["lane"], ColorSystem.TRUECOLOR) == "\x1b[38;2;86;180;233m"
    assert change(STYLES["text"], STYLES["strong"], ColorSystem.TRUECOLOR) == "\x1b[1m"
    assert change(STYLES["strong"], STYLES["text"], ColorSystem.TRUECOLOR).startswith("\x1b[0;38;2;")
    assert change(STYLES["turned"], STYLES["plain"], ColorSystem.TRUECOLOR) == "\x1b[0m"


def test_a_row_is_cut_at_cells_within_its_spans():
    assert cut((("abc", "text"), ("def", "lane")), 2, 4) == (("c", "text"), ("d", "lane"))
    assert cut((("日本", "text"), ("x", "lane")), 0, 5) == (("日本", "text"), ("x", "lane"))


# ---------------------------------------------------------------- the whole app


class EmulatedApp(MonitorApp):
    """Writes to an emulated terminal too."""

    def start_recording(self, width: int, height: int) -> None:
        self.terminal = pyte.Screen(width, height)
        self.stream = pyte.Stream(self.terminal)
        self.partial: list[str] = []

    def _display(self, screen, renderable):
        if isinstance(renderable, CompositorUpdate) and screen is self.screen:
            self.stream.feed(renderable.render_segments(self.console))
        super()._display(screen, renderable)

    def paint(self, text):
        self.stream.feed(text)
        self.partial.append(text)


def recorded(demo: Demo, width: int, height: int) -> EmulatedApp:
    app = app_of(demo, EmulatedApp)
    app.start_recording(width, height)
    return app


def shows(app: EmulatedApp) -> bool:
    """Return whether the terminal shows what it should."""
    expected = text_of(app.screen).splitlines()
    return all(row.rstrip() == line for row, line in zip(app.terminal.display, expected, strict=False))


async def test_after_many_small_updates_the_terminal_shows_what_it_should():
    demo = racing_demo()
    dice = random.Random(7)
    app = recorded(demo, 120, 36)
    async with app.run_test(size=(120, 36)) as pilot:
        await until(pilot, lambda: shows(app))
        for turn in range(15):
            await press(pilot, dice.choice(["tab", "b", "B", "p", "space", "escape", "question_mark"]))
            demo.race(dice.random() * 2, (dice.uniform(1e3, 9e3), dice.uniform(1e3, 9e3)))
            if turn == 12:
                demo.fail("gpu:0")
            app.monitor.pull()
            await until(pilot, lambda: shows(app))
        assert len(app.partial) > 10


async def test_an_update_writes_the_changed_cells_only_and_none_where_nothing_is_new():
    demo = racing_demo()
    app = recorded(demo, 120, 36)
    async with app.run_test(size=(120, 36)) as pilot:
        await until(pilot, lambda: shows(app))
        app.partial.clear()
        for _ in range(3):
            app.monitor.pull()
            await pilot.pause()
        assert app.partial == []
        demo.clock.ahead(1)
        app.monitor.pull()
        await until(pilot, lambda: app.partial and shows(app))
        written = "".join(app.partial)
        assert "tfmon" not in written and "small-dense" not in written


async def test_what_lies_over_the_race_is_left_standing():
    demo = racing_demo()
    app = recorded(demo, 120, 36)
    async with app.run_test(size=(120, 36), notifications=True) as pilot:
        app.notify("something over the race", timeout=3_600)
        await until(pilot, lambda: any("something over" in line for line in app.terminal.display))
        app.partial.clear()
        for _ in range(3):
            demo.race(1, (9_000, 100))
            app.monitor.pull()
            await pilot.pause()
        assert app.partial == []
        assert any("something over" in line for line in app.terminal.display)

"""What is written to the terminal, read back by a terminal emulator."""

from __future__ import annotations

import random
import time

import pyte
from support.ui import Demo, racing_demo
from textual._compositor import CompositorUpdate

from tfmon.ui.app import MonitorApp
from tfmon.ui.widgets.canvas import Canvas


class RecordingState(MonitorApp):
    """Writes to an emulated terminal beside its own."""

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


def recorded(demo: Demo, width: int, height: int) -> RecordingState:
    app = RecordingState(demo.session, demo.controls, demo.experiments, characters="braille")
    app.start_recording(width, height)
    return app


def assert_shown(app: RecordingState) -> None:
    expected = app.screen.query_one(Canvas).text().splitlines()
    for row, line in zip(app.terminal.display, expected, strict=False):
        assert row.rstrip() == line


async def test_after_many_small_updates_the_terminal_shows_what_it_should():
    demo = racing_demo()
    dice = random.Random(7)
    app = recorded(demo, 120, 36)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        assert_shown(app)
        for turn in range(25):
            await pilot.press(dice.choice(["tab", "b", "B", "p", "space", "escape", "question_mark"]))
            demo.race(dice.random() * 2, (dice.uniform(1e3, 9e3), dice.uniform(1e3, 9e3)))
            if turn == 20:
                demo.fail("gpu:0")
            app.pull()
            await pilot.pause()
            assert_shown(app)
        assert len(app.partial) > 10


async def test_an_update_begins_at_the_first_changed_cell():
    demo = racing_demo()
    app = recorded(demo, 120, 36)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        app.partial.clear()
        demo.clock.ahead(1)
        app.pull()
        await pilot.pause()
        written = "".join(app.partial)
        assert written
        assert "tfmon" not in written and "small-dense" not in written
        assert_shown(app)


async def test_nothing_new_writes_nothing():
    app = recorded(racing_demo(), 120, 36)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        app.partial.clear()
        for _ in range(3):
            app.pull()
            await pilot.pause()
        assert "".join(app.partial) == ""


async def test_what_lies_over_the_race_is_left_standing():
    demo = racing_demo()
    app = recorded(demo, 120, 36)
    async with app.run_test(size=(120, 36), notifications=True) as pilot:
        app.notify("something over the race", timeout=60)
        deadline = time.monotonic() + 5
        while not any("something over" in line for line in app.terminal.display):
            assert time.monotonic() < deadline, "\n".join(app.terminal.display)
            await pilot.pause()
        app.partial.clear()
        for _ in range(3):
            demo.race(1, (9_000, 100))
            app.pull()
            await pilot.pause()
        assert app.partial == []
        assert any("something over" in line for line in app.terminal.display)

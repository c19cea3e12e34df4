"""An app over a race that never was, and what a test does with it: press keys, turn the wheel, read the screen."""

import itertools
import time
from collections.abc import Callable

from support.ui import Demo, DemoSource
from support.waiting import LOOK_S, PATIENCE_S
from textual import screen
from textual.pilot import Pilot

from tfmon.analysis.analysis import analyse
from tfmon.ui.app import MonitorApp
from tfmon.ui.monitor import Ending
from tfmon.ui.render.race_frame import RaceFrame, draw
from tfmon.ui.render.rows import Row, cells, fit, plain
from tfmon.ui.screens.lane_page import lane_rows
from tfmon.ui.source import Display

HOPS = 4
"""A key goes from the app to the screen and back, and what it does may be a message again."""
Screen = Pilot[Ending]


def app_of(demo: Demo, kind: type[MonitorApp] = MonitorApp, **more) -> MonitorApp:
    """Return the app over a demo; what the app does not take, the source has."""
    taken = {name: more.pop(name) for name in MonitorApp.__init__.__kwdefaults__ if name in more}
    return kind(DemoSource(demo, **more), **{"characters": "braille", **taken})


def text_of(screen: screen.Screen) -> str:
    return "\n".join(strip.text.rstrip() for strip in screen._compositor.render_strips())


def shown(pilot: Screen) -> str:
    return text_of(pilot.app.screen)


def chosen(pilot: Screen) -> str:
    """Return the first cell of the chosen row of the table that is shown."""
    return pilot.app.screen.entry.cells[0][0].strip()


async def until(pilot: Screen, true: Callable[[], object]) -> None:
    """Let the app work until something is true; only the time in which this process runs counts."""
    waited_s, began = 0.0, time.monotonic()
    while not true():
        assert waited_s < PATIENCE_S, f"not within {PATIENCE_S} s; the screen shows:\n{shown(pilot)}"
        await pilot.pause()
        now = time.monotonic()
        waited_s, began = waited_s + min(now - began, LOOK_S), now


async def work_off(pilot: Screen) -> None:
    """Let the app do all that it was asked for: that it is idle may mean that others have the processor."""
    for _ in range(0 if pilot.app._exit else HOPS):
        await pilot._wait_for_screen()


async def press(pilot: Screen, *keys: str) -> None:
    """Press keys, each once the app has done what the one before asked for."""
    for key in keys:
        await pilot.press(key)
        await work_off(pilot)
    await pilot.pause()


async def wheel(pilot: Screen, kind: type, offset: tuple[int, int]) -> None:
    await pilot._post_mouse_events([kind], None, offset=offset)
    await work_off(pilot)
    await pilot.pause()


def frame(demo: Demo, width: int = 120, height: int = 36, **view) -> RaceFrame:
    return draw(analyse(demo.session.snapshot()), Display(**view), width, height)


def rows_of(shown: RaceFrame) -> list[Row]:
    """Return the rows of a frame from top to bottom, with the panes side by side."""
    rows, panes, columns = [*shown.above], [*shown.panes.values()], shown.columns
    for beside in (panes[at : at + columns] for at in range(0, len(panes), columns)):
        rows += [fit(itertools.chain(*row), cells(rows[0])) for row in zip(*beside, strict=True)]
    return [*rows, *shown.below]


def text(shown: RaceFrame) -> str:
    return "\n".join(plain(rows_of(shown)))


def lane_page(demo: Demo, lane: str, width: int = 120) -> str:
    snapshot = demo.session.snapshot()
    return "\n".join(plain(lane_rows(analyse(snapshot), snapshot.lane(lane), width)))

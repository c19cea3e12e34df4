"""An app over a race that never was, and what a test does with it: press keys, turn the wheel, read the screen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from support.ui import SCENARIOS, Demo
from textual.pilot import Pilot

from tfmon.ui.app import Ending, MonitorApp

DEADLINE_S = 120.0
Screen = Pilot[Ending]


def app_of(demo: Demo, **more) -> MonitorApp:
    wired = demo.session, demo.controls, demo.experiments
    return MonitorApp(*wired, **{"scenarios": lambda: SCENARIOS, "characters": "braille", **more})


def shown(pilot: Screen) -> str:
    return pilot.app.screen.canvas.text()


async def until(pilot: Screen, true: Callable[[], object]) -> None:
    """Let the app work until something is true."""
    deadline = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S} s; the screen shows:\n{shown(pilot)}"
        await pilot.pause()
        await asyncio.sleep(0)


async def press(pilot: Screen, *keys: str) -> None:
    await pilot.press(*keys)
    await pilot.pause()


async def wheel(pilot: Screen, kind: type, offset: tuple[int, int]) -> None:
    await pilot._post_mouse_events([kind], None, offset=offset)
    await pilot.pause()

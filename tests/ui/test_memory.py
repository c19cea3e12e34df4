"""What was on the screen is freed: a monitor runs for days."""

from __future__ import annotations

import gc
import time

from support.ui import racing_demo
from textual.strip import Strip

from tfmon.ui.screens.race import RaceScreen

from .pilot import app_of, press, until


def lines_kept() -> int:
    gc.collect()
    return sum(isinstance(thing, Strip) for thing in gc.get_objects())


async def test_pages_that_were_closed_leave_no_lines():
    """Textual keeps those of every widget it ever drew, unless a widget has none or they are freed."""

    async def open_and_close(*keys: str) -> None:
        for key in keys:
            await press(pilot, key)
            await press(pilot, "escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, RaceScreen))

    async with app_of(racing_demo()).run_test(size=(120, 36)) as pilot:
        for keys in (("enter", "k"), ("colon",)):
            await open_and_close(*keys)
            least = lines_kept()
            for _ in range(2):
                await open_and_close(*keys)
            deadline = time.monotonic() + 10
            while lines_kept() > least + 5:
                assert time.monotonic() < deadline, (keys, least, lines_kept())
                await pilot.pause()

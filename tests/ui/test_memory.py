"""What was on the screen is freed: a monitor runs for days."""

from __future__ import annotations

import gc
import tracemalloc

from support.ui import FakeRuns, racing_demo
from textual.command import CommandPalette

from tfmon.ui.screens.race import RaceScreen

from .pilot import app_of, press, until

PAGES = (
    *(f"show_tab({name!r})" for name in ("lane", "log", "knobs", "runs")), "open('help')", "pick_scenario",
    "show_crossover",
)  # fmt: skip
MOST_BYTES = 50 * 2**10
"""What a look may leave; Textual keeps 160 kB for each page that has lines of its own, 250 kB for a palette."""


def kept_bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


async def grows_no_more(pilot, look) -> None:
    """Wait until two looks have left little, after one that fills what is kept once; some is freed late."""
    await look()
    least = kept_bytes()
    await look()
    await look()
    await until(pilot, lambda: (kept_bytes() - least) / 2 < MOST_BYTES)


async def test_pages_that_were_closed_leave_nothing():
    app = app_of(racing_demo(), runs=FakeRuns())

    async def look_at_every_page() -> None:
        for page in PAGES:
            await app.screen.run_action(page)
            await pilot.pause()
            if page in ("pick_scenario", "show_crossover", "open('help')"):
                app.pop_screen()
        app.monitor.show("race")
        await pilot.pause()
        assert isinstance(app.screen, RaceScreen) and len(app.screen_stack) == 1

    async def look_at_the_palette() -> None:
        await press(pilot, "colon")
        await until(pilot, lambda: isinstance(app.screen, CommandPalette))
        await press(pilot, "escape")
        await until(pilot, lambda: isinstance(app.screen, RaceScreen))

    async with app.run_test(size=(120, 36)) as pilot:
        tracemalloc.start()
        try:
            await grows_no_more(pilot, look_at_every_page)
            await grows_no_more(pilot, look_at_the_palette)
        finally:
            tracemalloc.stop()

"""What a refresh draws, and what the monitor loads and keeps: counts, not times. A monitor runs for days."""

import gc
import tracemalloc

import pytest
from support.processes import run_python
from support.ui import FakeRuns, racing_demo
from textual.command import CommandPalette

from tfmon.ui.lines import Lines
from tfmon.ui.render import rows
from tfmon.ui.render.rows import Row
from tfmon.ui.screens.race_screen import RaceScreen

from .pilot import app_of, press, until

NOT_AT_FIRST = {
    "tensorflow", "keras", "numpy", "pynvml", "importlib.metadata", "plistlib", "pygments", "textual.pilot",
    "tfmon.ui.screens.help", "tfmon.reports", "tfmon.doctor", "packaging",
}  # fmt: skip
"""What the screen of a race needs later or never, and takes long to load or much memory."""


def drawn() -> int:
    """Return how many rows were put together so far."""
    return rows._fit.cache_info().misses


def all_rows(screen) -> list[Row]:
    return [row for lines in screen.query(Lines) for row in lines.rows]


async def test_nothing_is_drawn_again_where_nothing_is_new_and_little_where_one_lane_trains(demo, app, pilot):
    await pilot.pause()
    app.monitor.pull()
    before = drawn()
    for _ in range(5):
        app.monitor.pull()
    assert drawn() == before, "a refresh without news puts no row together"

    old = all_rows(app.screen)
    demo.race(0.2, (7_000, 7_000))
    app.monitor.pull()
    new = all_rows(app.screen)
    differing = [pair for pair in zip(old, new, strict=True) if pair[0] != pair[1]]
    assert 0 < len(differing) <= 24
    assert drawn() - before <= 3 * len(differing)


@pytest.mark.process
def test_the_monitor_loads_at_first_what_it_needs_at_first():
    found = run_python("-c", "import sys, tfmon.cli.main, tfmon.api.live; print(*sys.modules)").stdout.split()
    assert "tfmon.api.live" in found and not NOT_AT_FIRST & set(found)


PAGES = (
    *(f"show_tab({name!r})" for name in ("lane", "log", "knobs", "runs")), "open('help')", "pick_scenario",
    "show_crossover",
)  # fmt: skip
MOST_BYTES = 100 * 2**10
"""What a look may leave; Textual 8.2 would keep 160 kB for each page, and 250 kB for a palette."""


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


@pytest.mark.slow
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

"""What a refresh draws, and what the monitor loads: counts, not times."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.ui import racing_demo

from tfmon.ui.canvas import changes
from tfmon.ui.render import rows

from .pilot import app_of

NOT_AT_FIRST = {
    "tensorflow", "keras", "numpy", "pynvml", "importlib.metadata", "plistlib", "pygments", "textual.pilot",
}  # fmt: skip
"""What the screen of a race needs later or never, and takes long to load or much memory."""


def drawn() -> int:
    """Return how many rows were put together so far."""
    return rows._fit.cache_info().misses


async def test_nothing_is_drawn_again_where_nothing_is_new_and_little_where_one_lane_trains():
    demo = racing_demo()
    async with app_of(demo).run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        app = pilot.app
        app.monitor.pull()
        before = drawn()
        for _ in range(5):
            app.monitor.pull()
        assert drawn() == before, "a refresh without news puts no row together"

        old = app.screen.canvas._rows
        demo.race(0.2, (7_000, 7_000))
        app.monitor.pull()
        new = app.screen.canvas._rows
        differing = [pair for pair in zip(old, new, strict=True) if pair[0] != pair[1]]
        assert 0 < len(differing) <= 24
        assert drawn() - before <= 3 * len(differing)
        written = sum(last - first for pair in differing for first, last in changes(*pair)[1])
        assert written <= 400, "cells that are written for a window of one lane"


@pytest.mark.process
def test_the_monitor_loads_at_first_what_it_needs_at_first():
    found = subprocess.run(
        [sys.executable, "-c", "import sys, tfmon.cli.main, tfmon.runner.live; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert not NOT_AT_FIRST & set(found.stdout.split())

"""Read-only: no key changes the race, and each says so."""

from __future__ import annotations

import pytest
from support.ui import racing_demo

from tfmon.ui.keys import RACE_KEYS
from tfmon.ui.screens.race import RaceScreen

from .test_app import app_of, press, shown

SAID = "read only: this screen shows the race and changes nothing"
CHANGES = {
    "prefetch.next", "batch.down", "batch.up", "graph", "xla", "mixed", "pause", "mode", "try", "undo", "restart",
    "scenario", "lane.profile",
}  # fmt: skip
LEAVES = {"quit", "picture"}


@pytest.mark.parametrize("key", [key for key in RACE_KEYS if key.id not in LEAVES], ids=lambda key: key.id)
async def test_a_key_of_the_race_changes_nothing_and_says_so_if_it_would(key):
    demo = racing_demo()
    async with app_of(demo, readonly=True).run_test(size=(120, 36)) as pilot:
        assert "read only: keys change nothing" in shown(pilot)
        await press(pilot, key.keys.split(",")[0])
        assert demo.controls.calls == [] and demo.experiments.calls == []
        if key.id in CHANGES:
            assert SAID in shown(pilot)
            assert isinstance(pilot.app.screen, RaceScreen)
        elif key.id != "palette":
            assert SAID not in shown(pilot)


@pytest.mark.parametrize(
    "keys",
    [["k", "right"], ["c", "enter"], ["E", "enter"], ["E", "u"]],
    ids=["knobs", "crossover", "tune", "undo"],
)
async def test_a_page_changes_nothing_and_says_so(keys):
    demo = racing_demo()
    async with app_of(demo, readonly=True).run_test(size=(120, 36)) as pilot:
        await press(pilot, *keys)
        assert demo.controls.calls == [] and demo.experiments.calls == []
        assert SAID in shown(pilot)


async def test_a_click_changes_nothing():
    demo = racing_demo()
    async with app_of(demo, readonly=True).run_test(size=(120, 36)) as pilot:
        column = shown(pilot).splitlines()[-1].index("prefetch")
        await pilot.click(offset=(column, 35))
        await pilot.pause()
        assert demo.controls.calls == [] and SAID in shown(pilot)


async def test_the_race_can_be_left():
    demo = racing_demo()
    app = app_of(demo, readonly=True)
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "q")
    assert app.return_value == "quit"

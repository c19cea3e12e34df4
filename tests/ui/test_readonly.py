"""Read-only: no key changes the race, and each that would says so."""

from __future__ import annotations

from support.ui import racing_demo

from tfmon.ui.keys import RACE_KEYS
from tfmon.ui.screens.race import RaceScreen

from .pilot import app_of, press, shown

SAID = "read only: this screen shows the race and changes nothing"
CHANGES = {
    "prefetch.next", "batch.down", "batch.up", "graph", "xla", "mixed", "pause", "mode", "try", "undo", "restart",
    "scenario", "lane.profile",
}  # fmt: skip
OTHERS = {"quit", "picture", "palette"}


async def test_keys_and_clicks_change_nothing_and_say_so_if_they_would_and_q_leaves():
    demo = racing_demo()
    app = app_of(demo, readonly=True)
    async with app.run_test(size=(120, 36)) as pilot:
        assert "read only: keys change nothing" in shown(pilot) and "to undo" not in shown(pilot)
        for key in RACE_KEYS:
            if key.id in OTHERS:
                continue
            app.monitor.say("")
            await press(pilot, key.keys.split(",")[0])
            assert (SAID in shown(pilot)) == (key.id in CHANGES), key.id
            if key.id in CHANGES:
                assert isinstance(app.screen, RaceScreen), key.id
            elif not isinstance(app.screen, RaceScreen):
                await press(pilot, "escape")
            assert isinstance(app.screen, RaceScreen), key.id
        for keys in (("k", "right"), ("i", "K"), ("E", "enter"), ("E", "u")):
            app.monitor.say("")
            await press(pilot, *keys)
            assert SAID in shown(pilot), keys
            await press(pilot, "escape")
        app.monitor.say("")
        bottom = shown(pilot).splitlines()[-1]
        assert "prefetch" not in bottom and "restart" not in bottom and "? help" in bottom
        assert demo.controls.calls == [] and demo.experiments.calls == []
        await press(pilot, "q")
    assert app.return_value == "quit"

"""A user's training on the screen: a key that would end it asks before."""

import pytest
from support.ui import Demo
from ui.pilot import app_of, press, shown, until

from tfmon.model.events import LaneStarted


@pytest.mark.parametrize(
    ("keys", "asks", "acts"),
    [
        ("q", "leave small-dense running (d), or end it (q)?", [("stop",)]),
        ("r", "again from its beginning", [("restart", ("cpu", "gpu:0"))]),
        ("s", "end small-dense and choose a scenario", []),
    ],
    ids=["quit", "restart", "scenario"],
)
async def test_a_key_that_would_end_a_script_asks_before(keys, asks, acts):
    demo = Demo().go()
    for name in demo.names:
        started = LaneStarted(lane=name, at_ns=demo.clock(), pid=1, settings={}, command="python train.py")
        demo.session.accept(started)
    demo.enter_all("racing")
    app = app_of(demo, detachable=True)
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, keys)
        assert asks in shown(pilot) and not demo.controls.calls
        await press(pilot, "l")
        assert asks not in shown(pilot)
        await press(pilot, "escape", keys)
        assert asks in shown(pilot) and not demo.controls.calls, "the other page withdrew the question"
        await press(pilot, keys)
        await until(pilot, lambda: demo.controls.calls == acts and (acts or asks not in shown(pilot)))

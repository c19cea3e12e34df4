"""What was lost sight of is said until the user takes note."""

from __future__ import annotations

from support.ui import CPU_MACHINE, Demo, racing_demo

from tfmon.model.events import LaneStarted
from tfmon.model.spec import LaneSpec
from tfmon.ui.render.bars import failure_line
from tfmon.ui.view import View, acknowledged, with_failures

from .test_app import app_of, press, shown

LINE = "gpu:0 failed 0:00 ago, while hidden (Esc): no module named 'keras_hub'"


async def test_a_lane_that_fails_behind_a_page_is_pinned_there_and_on_the_race_until_esc():
    demo = racing_demo()
    async with app_of(demo).run_test(size=(120, 36)) as pilot:
        await press(pilot, "question_mark")
        demo.fail("gpu:0")
        pilot.app.pull()
        assert LINE in shown(pilot)
        await press(pilot, "escape")
        assert LINE in shown(pilot), "closing the page is not taking note"
        demo.clock.ahead(60)
        pilot.app.pull()
        assert "failed 1:00 ago" in shown(pilot)
        await press(pilot, "escape")
        assert "while hidden" not in shown(pilot)
        await press(pilot, "question_mark")
        assert "while hidden" not in shown(pilot)


async def test_a_lane_that_fails_in_sight_is_not_pinned():
    demo = racing_demo()
    async with app_of(demo).run_test(size=(120, 36)) as pilot:
        demo.fail("gpu:0")
        pilot.app.pull()
        await press(pilot, "question_mark")
        assert "while hidden" not in shown(pilot)


async def test_a_lane_that_found_no_room_is_pinned():
    demo = Demo([LaneSpec("cpu", {"batch_size": 2**power}) for power in range(5)], CPU_MACHINE)
    demo.go()
    async with app_of(demo).run_test(size=(80, 24)) as pilot:
        demo.fail(demo.names[4])
        pilot.app.pull()
        assert "cpu batch_size=16 failed 0:00 ago, while hidden" in shown(pilot)


def test_several_are_counted_and_one_that_trains_again_is_forgotten():
    demo = racing_demo()
    view = with_failures(View(), demo.session.snapshot(), ())
    for name in demo.names:
        demo.fail(name)
    view = with_failures(view, demo.session.snapshot(), ())
    assert failure_line(view, demo.session.snapshot(), "Esc").startswith("cpu (and 1 more) failed")
    demo.session.accept(LaneStarted(lane="cpu", at_ns=demo.clock(), pid=1, settings={}))
    view = with_failures(view, demo.session.snapshot(), ())
    assert view.unseen == ("gpu:0",)
    view = acknowledged(view)
    assert failure_line(view, demo.session.snapshot(), "Esc") == ""
    assert with_failures(view, demo.session.snapshot(), ()) is view

"""The mouse: the wheel turns knobs at the bottom and goes through lanes and pages; right steps back."""

from __future__ import annotations

import pytest
from support.ui import Demo, racing_demo
from textual.events import MouseScrollDown, MouseScrollUp

from tfmon.model.spec import LaneSpec

from .test_app import app_of, press, shown, until


async def wheel(pilot, kind, offset) -> None:
    await pilot._post_mouse_events([kind], None, offset=offset)
    await pilot.pause()


@pytest.mark.parametrize(("kind", "value"), [(MouseScrollUp, 32), (MouseScrollDown, 16)])
async def test_the_wheel_steps_the_knob_below_it(kind, value):
    demo = racing_demo()
    async with app_of(demo).run_test(size=(120, 36)) as pilot:
        column = shown(pilot).splitlines()[-1].index("batch")
        await wheel(pilot, kind, (column, 35))
        assert demo.controls.calls[0] == ("set_knob", "cpu", "batch_size", value)


async def test_the_right_button_steps_a_knob_back():
    demo = racing_demo()
    async with app_of(demo).run_test(size=(120, 36)) as pilot:
        column = shown(pilot).splitlines()[-1].index("batch")
        await pilot.click(offset=(column, 35), button=3)
        await until(pilot, lambda: demo.controls.calls)
        assert demo.controls.calls[0] == ("set_knob", "cpu", "batch_size", 16)


async def test_the_wheel_shows_lanes_that_found_no_room():
    demo = Demo([LaneSpec("cpu", {"batch_size": 2**power}) for power in range(5)])
    demo.go()
    async with app_of(demo).run_test(size=(80, 24)) as pilot:
        await wheel(pilot, MouseScrollDown, (10, 10))
        assert "C  cpu" in shown(pilot) and "A  cpu" not in shown(pilot)
        await wheel(pilot, MouseScrollUp, (10, 10))
        assert "A  cpu" in shown(pilot)


@pytest.mark.parametrize(
    ("keys", "first", "second"), [(["k"], " ▸ batch", " ▸ prefetch"), (["s"], " ▸ small", " ▸ large")]
)
async def test_the_wheel_chooses_on_a_page(keys, first, second):
    async with app_of(racing_demo()).run_test(size=(80, 24)) as pilot:
        await press(pilot, *keys)
        assert first in shown(pilot)
        await wheel(pilot, MouseScrollDown, (10, 10))
        assert second in shown(pilot)


async def test_the_wheel_scrolls_a_page_and_stops_at_its_ends():
    async with app_of(racing_demo()).run_test(size=(80, 24)) as pilot:
        await press(pilot, "question_mark")
        top = shown(pilot)
        await wheel(pilot, MouseScrollUp, (10, 10))
        assert shown(pilot) == top
        await wheel(pilot, MouseScrollDown, (10, 10))
        assert shown(pilot) != top

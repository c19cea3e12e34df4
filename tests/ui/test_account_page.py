"""The page of the account, and the part of a lane's page about it."""

import pytest
from support.ui import SECOND, Demo

from tfmon.model.account import BEFORE, INTERPRETER, START, STEPS, Accounted, TimePart
from tfmon.model.spec import LaneSpec

from .pilot import app_of, press, shown

LINE = "train.py:3 `vectorize.adapt(source.batch(1))`"


def accounted() -> Demo:
    demo = Demo([LaneSpec("cpu")])
    demo.race(2)
    parts = (
        TimePart(START, INTERPRETER, "", 1 * SECOND),
        TimePart(BEFORE, "adapting layers", LINE, 6 * SECOND),
        TimePart(STEPS, "step", "", 3 * SECOND),
    )
    demo.session.accept(Accounted(lane=demo.names[0], at_ns=demo.clock(), parts=parts))
    return demo


@pytest.mark.parametrize("width", [80, 140])
async def test_a_opens_the_account_of_a_lane_with_the_lines_of_the_script(width):
    demo = accounted()
    async with app_of(demo).run_test(size=(width, 40)) as pilot:
        await press(pilot, "A")
        page = shown(pilot)
        for text in ("before the first step", "60 %", "6.0 s", "adapting layers", LINE[:20]):
            assert text in page, page
        assert all(len(line) <= width for line in page.splitlines())
        await press(pilot, "A", "i")
        assert "The whole run" in shown(pilot)


async def test_the_page_says_that_a_lane_has_no_account_yet():
    demo = Demo([LaneSpec("cpu")])
    async with app_of(demo).run_test(size=(120, 40)) as pilot:
        await press(pilot, "A")
        assert "before the first step" in shown(pilot)

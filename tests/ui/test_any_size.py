"""Whatever the size, the lanes and their state: every page fills the terminal exactly, and nothing overlaps."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from support.ui import CPU_MACHINE, SCENARIOS, Demo, racing_demo

from tfmon.analysis.analysis import analyse
from tfmon.model.spec import LaneSpec
from tfmon.ui.app import MonitorApp
from tfmon.ui.render.layout import Rect, arrange
from tfmon.ui.render.race import draw
from tfmon.ui.render.rows import cells
from tfmon.ui.view import View
from tfmon.ui.widgets.canvas import Canvas

SIZES = [(1, 1), (9, 3), (24, 2), (30, 8), (41, 14), (60, 16), (79, 23), (80, 24), (121, 37), (250, 70)]
PAGES = ["question_mark", "k", "s", "l", "c", "E", "d", "enter"]


def overlap(one: Rect, other: Rect) -> bool:
    apart = one.x >= other.x + other.width or other.x >= one.x + one.width
    return not (apart or one.y >= other.y + other.height or other.y >= one.y + one.height)


def demo_of(lanes: int, phases: list[str]) -> Demo:
    demo = Demo([LaneSpec("cpu", {"batch_size": 2**power}) for power in range(lanes)], CPU_MACHINE)
    demo.go()
    demo.race(1, [1_000, 20, 300_000])
    for name, phase in zip(demo.names, phases, strict=False):
        if phase == "failed":
            demo.fail(name, "an error with a very long explanation " * 5)
        else:
            demo.enter(name, phase)
    return demo


@given(
    width=some.integers(1, 320),
    height=some.integers(1, 100),
    lanes=some.integers(0, 9),
    phases=some.lists(some.sampled_from(["importing", "racing", "paused", "done", "failed"]), max_size=9),
    message=some.text(max_size=200),
    charset=some.sampled_from(["braille", "block", "ascii"]),
    focused=some.integers(0, 9),
)
@settings(max_examples=150, deadline=None)
def test_the_race_fills_the_terminal_exactly(width, height, lanes, phases, message, charset, focused):
    demo = demo_of(lanes, phases)
    snapshot = demo.session.snapshot()
    name = demo.names[focused] if focused < lanes else None
    view = View(focused=name, charset=charset, message=message, message_until_ns=snapshot.at_ns + 1, readonly=True)
    page = draw(analyse(snapshot), view, width, height)
    assert len(page.rows) == height
    assert {cells(row) for row in page.rows} == {width}
    for zone in page.zones:
        assert zone.rect.x >= 0 and zone.rect.x + zone.rect.width <= max(width, zone.rect.x + zone.rect.width)
        assert zone.rect.y + zone.rect.height <= height
    for one, other in combinations(page.zones, 2):
        assert not overlap(one.rect, other.rect), (one, other)


@given(some.integers(1, 400), some.integers(1, 150), some.integers(0, 16), some.integers(0, 15))
@settings(max_examples=500, deadline=None)
def test_the_parts_of_a_layout_fit_and_do_not_overlap(width, height, lanes, focused):
    layout = arrange(width, height, lanes, min(focused, max(0, lanes - 1)))
    parts = [layout.header, layout.verdict, layout.status, layout.keys, *(place.rect for place in layout.panes)]
    shown = [part for part in parts if part.height and part.width]
    for part in shown:
        assert part.x >= 0 and part.y >= 0
        assert part.x + part.width <= width and part.y + part.height <= height
    for one, other in combinations(shown, 2):
        assert not overlap(one, other)


@pytest.mark.parametrize("key", PAGES)
async def test_a_page_survives_every_size(key):
    demo = racing_demo()
    app = MonitorApp(demo.session, demo.controls, demo.experiments, scenarios=lambda: SCENARIOS, characters="braille")
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press(key)
        await pilot.pause()
        for width, height in SIZES:
            await pilot.resize_terminal(width, height)
            await pilot.pause()
            rows = app.screen.query_one(Canvas)._rows
            assert len(rows) <= height
            assert {cells(row) for row in rows} <= {width}

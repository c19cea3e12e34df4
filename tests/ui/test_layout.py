"""Whatever the size, the lanes and their state: the screen fills the terminal exactly, and nothing overlaps."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from support.ui import CPU_MACHINE, Demo, racing_demo
from textual.geometry import Size

from tfmon.analysis.analysis import analyse
from tfmon.model.spec import LaneSpec
from tfmon.ui.render.layout import MIN_PANE_HEIGHT, MIN_PANE_WIDTH, Rect, arrange
from tfmon.ui.render.race import draw
from tfmon.ui.render.rows import cells
from tfmon.ui.source import Display

from .pilot import app_of, press, until

SIZES = [(1, 1), (24, 2), (41, 14), (60, 16), (80, 24), (250, 70)]
PAGES = ["question_mark", "k", "s", "l", "c", "E", "d", "enter"]


def assert_apart_and_inside(rects: list[Rect], width: int, height: int) -> None:
    for rect in rects:
        assert rect.x >= 0 and rect.y >= 0 and rect.width > 0
        assert rect.x + rect.width <= width and rect.y + rect.height <= height, (width, height, rect)
    for one, other in combinations(rects, 2):
        apart = one.x >= other.x + other.width or other.x >= one.x + one.width
        assert apart or one.y >= other.y + other.height or other.y >= one.y + one.height, (one, other)


@given(some.integers(1, 400), some.integers(1, 150), some.integers(0, 16), some.integers(0, 15))
@settings(max_examples=500)
def test_the_parts_fill_the_screen_and_do_not_overlap(width, height, lanes, focused):
    focused = min(focused, max(0, lanes - 1))
    layout = arrange(width, height, lanes, focused)
    panes = [place.rect for place in layout.panes]
    parts = [layout.tabs, layout.header, layout.verdict, layout.status, layout.keys, *panes]
    assert_apart_and_inside([part for part in parts if part.height], width, height)
    if panes:
        assert focused in [place.lane for place in layout.panes]
        assert min(pane.width for pane in panes) >= MIN_PANE_WIDTH
        assert min(pane.height for pane in panes) >= MIN_PANE_HEIGHT
        assert max(pane.x + pane.width for pane in panes) == width
        assert layout.verdict.y == max(pane.y + pane.height for pane in panes)
    shown = {place.lane for page in range(lanes) for place in arrange(width, height, lanes, page).panes}
    assert shown in (set(), set(range(lanes))), "every lane is on some page"


@pytest.mark.parametrize(
    ("width", "height", "lanes", "kind", "visible"),
    [
        (80, 24, 2, "panes", 2),
        (120, 36, 3, "panes", 3),
        (200, 50, 8, "panes", 8),
        (80, 24, 8, "panes", 2),
        (60, 16, 2, "lines", 0),
        (60, 18, 2, "panes", 1),
        (60, 12, 2, "lines", 0),
        (30, 24, 2, "lines", 0),
        (24, 1, 2, "lines", 0),
        (10, 3, 2, "tiny", 0),
        (23, 50, 2, "tiny", 0),
    ],
)
def test_the_size_settles_the_kind_and_the_lanes_in_view(width, height, lanes, kind, visible):
    layout = arrange(width, height, lanes)
    assert layout.kind == kind
    assert len(layout.panes) == visible


def demo_of(lanes: int, phases: list[str]) -> Demo:
    demo = Demo([LaneSpec("cpu", {"batch_size": 2**power}) for power in range(lanes)], CPU_MACHINE).go()
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
def test_the_race_fills_the_terminal_exactly(width, height, lanes, phases, message, charset, focused):
    demo = demo_of(lanes, phases)
    analysis = analyse(demo.session.snapshot())
    name = demo.names[focused] if focused < lanes else None
    until_ns = analysis.snapshot.at_ns + 1
    view = Display(focused=name, charset=charset, message=message, message_until_ns=until_ns, readonly=True)
    page = draw(analysis, view, width, height)
    assert len(page.rows) == height
    assert {cells(row) for row in page.rows} == {width}
    assert charset != "ascii" or all(text.isascii() for row in page.rows for text, _ in row)
    assert_apart_and_inside([zone.rect for zone in page.zones], width, height)


async def test_every_page_survives_every_size(monkeypatch):
    app = app_of(racing_demo())

    def is_full(width: int, height: int) -> bool:
        rows = app.screen.canvas._rows
        return len(rows) <= height and {cells(row) for row in rows} == {width}

    async with app.run_test(size=(120, 36)) as pilot:
        for key in (None, *PAGES):
            if key:
                await press(pilot, key)
            for size in SIZES:
                with monkeypatch.context() as patched:  # quicker than that Textual resizes everything
                    patched.setattr(type(app), "size", Size(*size))
                    app.screen.redraw()
                assert is_full(*size), (key, size)
            await press(pilot, "escape")
        for size in SIZES[::3]:
            await pilot.resize_terminal(*size)
            await until(pilot, lambda size=size: is_full(*size))


@pytest.mark.parametrize(("height", "shown"), [(24, False), (29, False), (30, True), (50, True)])
def test_the_race_has_the_tabs_of_its_pages_where_the_panes_leave_room(height, shown):
    demo = demo_of(2, ["racing", "racing"])
    frame = draw(analyse(demo.session.snapshot()), Display(tabs=("race", "lane", "log")), 100, height)
    top = "".join(text for text, _ in frame.rows[0])
    assert ("[Esc race]" in top) is shown, top
    if shown:
        assert "profile" not in top, "only the pages that there are"
        assert [zone.action for zone in frame.zones if zone.rect.y == 0] == [
            f"show_tab({name!r})" for name in ("race", "lane", "log")
        ]
    panes = [zone.rect for zone in frame.zones if zone.action.startswith("focus_lane")]
    assert all(frame.rows[pane.y][0][0][0] in "╭┏" for pane in panes), "a click meets the pane that is drawn there"

from __future__ import annotations

import itertools

import pytest

from tfmon.ui.render.layout import MIN_PANE_HEIGHT, MIN_PANE_WIDTH, Layout, Rect, arrange

WIDTHS = (1, 10, 23, 24, 39, 40, 59, 60, 79, 80, 81, 100, 119, 120, 121, 163, 200, 317)
HEIGHTS = (1, 2, 3, 8, 13, 14, 15, 16, 17, 18, 20, 24, 29, 30, 36, 50, 97)
LANES = (0, 1, 2, 3, 4, 5, 8, 13)


def parts(layout: Layout) -> list[Rect]:
    rects = [layout.header, layout.verdict, layout.status, layout.keys, *(place.rect for place in layout.panes)]
    return [rect for rect in rects if rect.height]


def overlap(one: Rect, other: Rect) -> bool:
    return (
        other.x < one.x + one.width
        and one.x < other.x + other.width
        and other.y < one.y + one.height
        and one.y < other.y + other.height
    )


@pytest.mark.parametrize("lanes", LANES)
def test_nothing_overlaps_and_everything_fits(lanes: int):
    for width, height in itertools.product(WIDTHS, HEIGHTS):
        for focused in (None, 0, max(0, lanes - 1)):
            rects = parts(arrange(width, height, lanes, focused))
            assert rects
            for rect in rects:
                assert rect.x >= 0 and rect.y >= 0 and rect.width > 0
                assert rect.x + rect.width <= width and rect.y + rect.height <= height, (width, height, rect)
            for one, other in itertools.combinations(rects, 2):
                assert not overlap(one, other), (width, height, lanes, one, other)


@pytest.mark.parametrize("lanes", [1, 2, 3, 5, 8])
def test_panes_fill_the_area_are_large_enough_and_show_the_focused_lane(lanes: int):
    for width, height in itertools.product(WIDTHS, HEIGHTS):
        for focused in range(lanes):
            layout = arrange(width, height, lanes, focused)
            if layout.kind != "panes":
                assert not layout.panes
                continue
            assert focused in [place.lane for place in layout.panes]
            assert all(place.rect.width >= MIN_PANE_WIDTH for place in layout.panes)
            assert all(place.rect.height >= MIN_PANE_HEIGHT for place in layout.panes)
            assert max(place.rect.x + place.rect.width for place in layout.panes) <= width
            assert layout.verdict.y == max(place.rect.y + place.rect.height for place in layout.panes)


def test_every_lane_is_on_some_page():
    for width, height in ((80, 24), (120, 36), (60, 16), (200, 50)):
        shown = {place.lane for focused in range(13) for place in arrange(width, height, 13, focused).panes}
        assert shown == set(range(13))


@pytest.mark.parametrize(
    ("width", "height", "lanes", "kind", "visible"),
    [
        (80, 24, 2, "panes", 2),
        (120, 36, 2, "panes", 2),
        (120, 36, 3, "panes", 3),
        (200, 50, 8, "panes", 8),
        (80, 24, 8, "panes", 2),
        (60, 16, 2, "panes", 1),
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


def test_two_panes_stand_side_by_side_and_share_the_width():
    left, right = (place.rect for place in arrange(121, 36, 2).panes)
    assert left.y == right.y and left.height == right.height
    assert left.width + right.width == 121
    assert right.x == left.width


def test_a_rectangle_holds_its_own_cells_only():
    rect = Rect(2, 3, 4, 1)
    assert rect.contains(2, 3) and rect.contains(5, 3)
    assert not rect.contains(6, 3) and not rect.contains(2, 4) and not rect.contains(1, 3)

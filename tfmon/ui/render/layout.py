"""Where everything is placed on a terminal of a given size. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

MIN_PANE_WIDTH, MIN_PANE_HEIGHT = 40, 12
LEAST_HEIGHT_WITH_TABS = 30
"""Lower terminals need the line of tabs for the panes; the keys are the same without it."""
LEAST_HEIGHT_WITH_LEAD = 22
"""Lower terminals need the line that says what is compared for the panes."""
MIN_LINE_WIDTH = 24
"""Narrower terminals show nothing."""


@dataclass(frozen=True, slots=True)
class Rect:
    """A rectangle of cells."""

    x: int
    y: int
    width: int
    height: int

    def contains(self, x: int, y: int) -> bool:
        """Return whether a cell lies inside."""
        return self.x <= x < self.x + self.width and self.y <= y < self.y + self.height


@dataclass(frozen=True, slots=True)
class PanePosition:
    """Where a lane's pane is."""

    lane: int
    rect: Rect


@dataclass(frozen=True, slots=True)
class Layout:
    """The parts of the screen; a part without room has height 0."""

    kind: Literal["panes", "lines", "tiny"]
    """`lines` is one line a lane or less; `tiny` only reports that the terminal is too small."""
    tabs: Rect
    """The pages beside the race."""
    header: Rect
    lead: Rect
    """The line that says what is compared."""
    panes: tuple[PanePosition, ...]
    verdict: Rect
    status: Rect
    keys: Rect
    per_page: int = 0
    """Lanes that are visible at once."""

    @property
    def result_on_top(self) -> bool:
        """True when the verdict stands above the panes: the race is over."""
        return bool(self.panes) and self.verdict.y < self.panes[0].rect.y


def arrange(width: int, height: int, lanes: int, focused: int | None = None, result: int = 0) -> Layout:
    """Lay out a screen for a number of lanes; if not all fit, the page with the focused lane is shown.

    Where not even that page could be announced, all lanes are shown in a line each unless one is focused.
    With `result` rows the race is over: they stand above the panes, instead of the verdict below.
    """
    if width < MIN_LINE_WIDTH or height < 1:
        return _without_panes("tiny", width, height, 0)
    below = 1 if height < 20 else 3 if height < 30 else 5
    status = 0 if height < 18 else 1
    tabs = 1 if height >= LEAST_HEIGHT_WITH_TABS else 0
    lead = 1 if lanes and height >= LEAST_HEIGHT_WITH_LEAD else 0
    if result:
        below = max(1, min(result, height - 2 - status - tabs - lead - MIN_PANE_HEIGHT))
    area = height - 2 - below - status - tabs - lead
    if width < MIN_PANE_WIDTH or area < MIN_PANE_HEIGHT:
        return _without_panes("lines", width, height, lanes)
    columns, rows = _grid(width, area, lanes)
    per_page = columns * rows
    if per_page < lanes and focused is None and not status:
        return _without_panes("lines", width, height, lanes)
    first = (focused or 0) // per_page * per_page
    top = tabs + 1 + lead + (below if result else 0)
    return Layout(
        kind="panes",
        tabs=Rect(0, 0, width, tabs),
        header=Rect(0, tabs, width, 1),
        lead=Rect(0, tabs + 1, width, lead),
        panes=_places(Rect(0, top, width, area), range(first, min(lanes, first + per_page)), columns),
        verdict=Rect(0, tabs + 1 + lead if result else top + area, width, below),
        status=Rect(0, height - 1 - status, width, status),
        keys=Rect(0, height - 1, width, 1),
        per_page=per_page,
    )


def alone(layout: Layout, lane: int) -> Layout:
    """Return a layout in which one lane has the room of all panes."""
    if not layout.panes:
        return layout
    rects = [place.rect for place in layout.panes]
    top, bottom = rects[0].y, max(rect.y + rect.height for rect in rects)
    rect = Rect(0, top, layout.header.width, bottom - top)
    return replace(layout, panes=(PanePosition(lane, rect),), per_page=1)


def _grid(width: int, height: int, lanes: int) -> tuple[int, int]:
    """Return how many columns and rows of panes show as many lanes as possible in as few rows as possible."""
    most_columns = max(1, width // MIN_PANE_WIDTH)
    most_rows = max(1, height // MIN_PANE_HEIGHT)
    visible = max(1, min(lanes, most_columns * most_rows))
    rows = -(-visible // most_columns)
    return -(-visible // rows), rows


def _places(area: Rect, lanes: range, columns: int) -> tuple[PanePosition, ...]:
    columns = max(1, min(columns, len(lanes)))
    rows = max(1, -(-len(lanes) // columns))
    places = []
    for place, lane in enumerate(lanes):
        row, column = divmod(place, columns)
        left, right = area.width * column // columns, area.width * (column + 1) // columns
        top, bottom = area.height * row // rows, area.height * (row + 1) // rows
        places.append(PanePosition(lane, Rect(area.x + left, area.y + top, right - left, bottom - top)))
    return tuple(places)


def _without_panes(kind: Literal["lines", "tiny"], width: int, height: int, lanes: int) -> Layout:
    keys = 1 if kind == "lines" and height >= lanes + 2 else 0
    body = height - keys
    return Layout(
        kind=kind,
        tabs=Rect(0, 0, width, 0),
        header=Rect(0, 0, width, 0),
        lead=Rect(0, 0, width, 0),
        panes=(),
        verdict=Rect(0, 0, width, body),
        status=Rect(0, body, width, 0),
        keys=Rect(0, body, width, keys),
    )

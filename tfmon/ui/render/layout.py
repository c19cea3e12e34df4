"""Where everything is on a terminal of a given size, and the lines of tabs and of keys at its edges. Pure."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from tfmon.model.knobs import Knob, short_name
from tfmon.model.lane_state import PAUSED, RACING, LaneState
from tfmon.model.periods import why_mode_stays
from tfmon.model.race import TURNS
from tfmon.model.session import Snapshot
from tfmon.ui.keys import BY_ID, TABS, key_of, tab_action
from tfmon.ui.render.rows import DIM, TEXT, Row, Span, cells, crop, fit
from tfmon.ui.render.style import KEY, STRONG
from tfmon.ui.render.verdict import shows
from tfmon.ui.source import Display, shared_value, targets

MIN_PANE_WIDTH, MIN_PANE_HEIGHT = 40, 12
LEAST_HEIGHT_WITH_TABS = 30
"""Minimum height for the line of tabs. The keys are the same without it."""
LEAST_HEIGHT_WITH_LEAD = 22
"""Minimum height for the line that states what is compared."""
MIN_LINE_WIDTH = 24


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
class Zone:
    """A stretch of the screen that a click acts on."""

    rect: Rect
    action: str
    knob: str = ""


@dataclass(frozen=True, slots=True)
class PanePosition:
    """Where a lane's pane is."""

    lane: int
    rect: Rect


@dataclass(frozen=True, slots=True)
class Layout:
    """The parts of the screen; a part without room has height 0."""

    kind: Literal["panes", "lines", "tiny"]
    """`lines` is at most one line a lane. `tiny` reports that the terminal is too small."""
    tabs: Rect
    header: Rect
    lead: Rect
    panes: tuple[PanePosition, ...]
    verdict: Rect
    status: Rect
    keys: Rect
    per_page: int = 0

    @property
    def result_on_top(self) -> bool:
        """True when the verdict stands above the panes: the race is over."""
        return bool(self.panes) and self.verdict.y < self.panes[0].rect.y


def arrange(width: int, height: int, lanes: int, focused: int | None = None, result: int = 0) -> Layout:
    """Lay out a screen. If not all lanes fit, show the page with the focused lane.

    Without focus and without a status row, show a line for each lane instead. `result` rows stand above the panes.
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
    # As many lanes as possible in as few rows as possible.
    most_columns = width // MIN_PANE_WIDTH
    visible = max(1, min(lanes, most_columns * (area // MIN_PANE_HEIGHT)))
    rows = -(-visible // most_columns)
    columns = -(-visible // rows)
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
    body, none = height - keys, Rect(0, 0, width, 0)
    return Layout(kind, none, none, none, (), Rect(0, 0, width, body), none, Rect(0, body, width, keys))


class Hint(NamedTuple):
    """What a key does here and now."""

    key: str
    word: str
    action: str = ""


def tab_row(names: Sequence[str], current: str, keys: Mapping[str, str], width: int) -> tuple[Row, list[Zone]]:
    """Return the tabs with their keys, and where each is clicked; where there is no room, words go first."""
    shown = [tab for tab in TABS if tab in names]
    parts = [_tab_spans(tab, current, keys, named=True) for tab in shown]
    if sum(map(cells, parts)) > width:
        parts = [_tab_spans(tab, current, keys, named=False) for tab in shown]
    while sum(map(cells, parts)) > width and shown[0] != current and current in names:
        shown, parts = shown[1:], parts[1:]
    row: list[Span] = []
    zones: list[Zone] = []
    for tab, spans in zip(shown, parts, strict=True):
        zones.append(Zone(Rect(cells(row), 0, cells(spans), 1), tab_action(tab)))
        row += spans
    return fit(row, width), zones


def _tab_spans(tab: str, current: str, keys: Mapping[str, str], *, named: bool) -> list[Span]:
    """Return a tab with its key, in brackets if it is the current tab."""
    here = tab == current
    label = f" {tab}" if named or here else ""
    key, style = key_of(TABS[tab], keys), STRONG if here else DIM
    return [("[" if here else " ", STRONG), (key, KEY), (label, style), ("]" if here else " ", STRONG)]


@dataclass(frozen=True, slots=True)
class KeyItem:
    """A part of the line of keys."""

    importance: int
    """0 always stays. Higher numbers are dropped first."""
    spans: tuple[Span, ...]
    action: str = ""
    knob: str = ""


def item(importance: int, pressed: str, word: str, action: str = "") -> KeyItem:
    """Return keys and what they do as a part of the line."""
    return KeyItem(importance, ((pressed, KEY), (f" {word}", DIM)), action)


@functools.lru_cache(maxsize=16)
def item_row(items: tuple[KeyItem, ...], width: int, y: int) -> tuple[Row, tuple[Zone, ...]]:
    """Return the items that have room, and where they can be clicked."""
    kept = list(items)
    while cells(span for one in kept for span in one.spans) + 2 * len(kept) > width + 1:
        least = max(one.importance for one in kept)
        if not least:
            break
        kept = [one for one in kept if one.importance < least]
    row: list[Span] = [(" ", TEXT)]
    zones: list[Zone] = []
    for one in kept:
        if len(row) > 1:
            row.append(("  ", TEXT))
        if one.action:
            zones.append(Zone(Rect(cells(row), y, cells(one.spans), 1), one.action, one.knob))
        row += one.spans
    return fit(row, width), tuple(zones)


def hint_row(hints: Sequence[Hint], width: int, y: int) -> tuple[Row, tuple[Zone, ...]]:
    """Return the keys with their actions, and where each is clicked; the last two always stay."""
    always = len(hints) - 2
    items = [item(place + 1 if place < always else 0, *hint) for place, hint in enumerate(hints)]
    return item_row(tuple(items), width, y)


def keys_row(
    snapshot: Snapshot, view: Display, width: int, y: int, *, hides: bool = False
) -> tuple[Row, tuple[Zone, ...]]:
    """Return the keys that apply now, and where each can be clicked; that to the lanes that the screen `hides`."""
    turns = [_item(0, "focus.next", "next", view.keys)] if hides else []
    return item_row((*turns, *_items(snapshot, view)), width, y)


def _items(snapshot: Snapshot, view: Display) -> Iterator[KeyItem]:
    keys, script = view.keys, any(lane.script.command for lane in snapshot.lanes)
    if view.stopping:
        yield _item(0, "quit", "leave at once", keys)
        return
    if shows(snapshot, view):
        yield _item(1, "picture", "save", keys)
        yield _item(3, "report", "report", keys)
        if not view.readonly:
            yield _item(2, "restart", "again", keys)
            if not script:
                yield _item(4, "scenario", "another scenario", keys)
    elif not view.readonly:
        yield from _of_a_race(snapshot, view, script=script)
    if snapshot.lanes:
        yield _item(6, "lane.detail", "detail", keys)
        back = "all lanes" if len(snapshot.lanes) > 1 else "back"
        yield _item(7, "zoom", back if view.zoomed else "zoom", keys)
        yield _item(7, "lane.log", "log", keys)
        yield _item(8, "copy", "copy", keys)
    yield _item(0, "help", "help", keys)
    yield _item(0, "quit", "leave" if snapshot.over else "quit", keys)


def _of_a_race(snapshot: Snapshot, view: Display, *, script: bool) -> Iterator[KeyItem]:
    lanes, keys = targets(snapshot.lanes, view.focused), view.keys
    for knob in snapshot.race.knobs:
        if knob.name == "prefetch":
            yield _knob_item(2, key_of("prefetch.next", keys), knob, lanes, "step_knob('prefetch', 1)")
        elif knob.name == "batch_size":
            pair = f"{key_of('batch.down', keys)}/{key_of('batch.up', keys)}"
            yield _knob_item(1, pair, knob, lanes, "step_knob('batch_size', 1)")
    if any(lane.phase == RACING for lane in lanes):
        yield _item(3, "pause", "pause", keys)
    elif any(lane.phase == PAUSED for lane in lanes):
        yield _item(3, "pause", "resume", keys)
    if not why_mode_stays(snapshot.lanes) and not script:
        yield _item(8, "mode", "at once" if snapshot.race.mode == TURNS else "turns", keys)
    if lanes:
        yield _item(5, "restart", "restart", keys)
    if snapshot.race.knobs:
        yield _item(7, "knobs", "knobs", keys)
    if not script:
        yield _item(4, "scenario", "scenario", keys)
        if any(lane.points for lane in lanes):
            yield _item(6, "try", "try advice", keys)
        if len(snapshot.lanes) == 2 and all(lane.points for lane in snapshot.lanes):
            yield _item(8, "crossover", "crossover", keys)


def _item(importance: int, binding: str, word: str, keys: Mapping[str, str]) -> KeyItem:
    return item(importance, key_of(binding, keys), word, BY_ID[binding].action)


def _knob_item(importance: int, key: str, knob: Knob, lanes: Sequence[LaneState], action: str) -> KeyItem:
    now, requested = shared_value(lanes, knob)
    spans: list[Span] = [(key, KEY), (f" {short_name(knob.name)} ", DIM), (crop(now, 12), TEXT)]
    if requested:
        spans.append((f" → {crop(requested, 8)} requested", DIM))
    return KeyItem(importance, tuple(spans), action, knob.name)

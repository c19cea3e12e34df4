"""Which parts a terminal of a given size has room for, and the lines of tabs and of keys at its edges. Pure."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tfmon.model.knobs import Knob, short_name
from tfmon.model.lane_state import PAUSED, RACING, LaneState
from tfmon.model.periods import why_mode_stays
from tfmon.model.race import TURNS
from tfmon.model.session import Snapshot
from tfmon.ui.keys import BY_ID, TABS, key_of, tab_action
from tfmon.ui.render.rows import DIM, TEXT, Row, Span, cells, crop, fit
from tfmon.ui.render.style import KEY, STRONG, link
from tfmon.ui.render.verdict import shows
from tfmon.ui.source import Display, shared_value, targets

MIN_PANE_WIDTH, MIN_PANE_HEIGHT = 40, 12
LEAST_HEIGHT_WITH_TABS = 30
"""Minimum height for the line of tabs. The keys are the same without it."""
LEAST_HEIGHT_WITH_LEAD = 22
"""Minimum height for the line that states the comparison."""
MIN_LINE_WIDTH = 24


@dataclass(frozen=True, slots=True)
class Layout:
    """The parts of the screen and their rows. A part without room has none."""

    kind: Literal["panes", "lines", "tiny"]
    """`lines` is at most one line a lane. `tiny` reports that the terminal is too small."""
    width: int
    body: int
    """Rows of the panes, or of the lines."""
    keys: int
    tabs: int = 0
    lead: int = 0
    verdict: int = 0
    status: int = 0
    lanes: range = range(0)
    """Indices of the lanes with a pane."""
    columns: int = 1
    per_page: int = 0

    @property
    def pane_widths(self) -> list[int]:
        """Width of each column of panes."""
        return parts_of(self.width, self.columns)

    @property
    def pane_heights(self) -> list[int]:
        """Height of each row of panes."""
        return parts_of(self.body, max(1, -(-len(self.lanes) // self.columns)))


def parts_of(cells: int, count: int) -> list[int]:
    """Return sizes that differ by one cell at most and fill some cells, as a grid of Textual does."""
    ends = [cells * number // count for number in range(count + 1)]
    return [end - start for start, end in itertools.pairwise(ends)]


def arrange(width: int, height: int, lanes: int, focused: int | None = None, result: int = 0) -> Layout:
    """Lay out a screen. If not all lanes fit, show the page with the focused lane.

    Without focus and without a status row, show a line for each lane instead. `result` rows stand above the panes.
    """
    if width < MIN_LINE_WIDTH or height < 1:
        return Layout("tiny", width, height, 0)
    below = 1 if height < 20 else 3 if height < 30 else 5
    status = 0 if height < 18 else 1
    tabs = 1 if height >= LEAST_HEIGHT_WITH_TABS else 0
    lead = 1 if lanes and height >= LEAST_HEIGHT_WITH_LEAD else 0
    if result:
        below = max(1, min(result, height - 2 - status - tabs - lead - MIN_PANE_HEIGHT))
    area = height - 2 - below - status - tabs - lead
    # As many lanes as possible in as few rows as possible.
    most_columns = max(1, width // MIN_PANE_WIDTH)
    visible = max(1, min(lanes, most_columns * (area // MIN_PANE_HEIGHT)))
    rows = -(-visible // most_columns)
    columns = -(-visible // rows)
    per_page = columns * rows
    too_small = width < MIN_PANE_WIDTH or area < MIN_PANE_HEIGHT
    if too_small or (per_page < lanes and focused is None and not status):
        keys = 1 if height >= lanes + 2 else 0
        return Layout("lines", width, height - keys, keys)
    first = (focused or 0) // per_page * per_page
    shown = range(first, min(lanes, first + per_page))
    columns = max(1, min(columns, len(shown)))
    return Layout("panes", width, area, 1, tabs, lead, below, status, shown, columns, per_page)


class Hint(NamedTuple):
    """The action of a key in this state."""

    key: str
    word: str
    action: str = ""


def tab_row(names: Sequence[str], current: str, keys: Mapping[str, str], width: int) -> Row:
    """Return the tabs with their keys. Without room, words are dropped first."""
    shown = [tab for tab in TABS if tab in names]
    parts = [_tab_spans(tab, current, keys, named=True) for tab in shown]
    if sum(map(cells, parts)) > width:
        parts = [_tab_spans(tab, current, keys, named=False) for tab in shown]
    while sum(map(cells, parts)) > width and shown[0] != current and current in names:
        shown, parts = shown[1:], parts[1:]
    return fit([span for part in parts for span in part], width)


def _tab_spans(tab: str, current: str, keys: Mapping[str, str], *, named: bool) -> list[Span]:
    """Return a tab with its key, in brackets if it is the current tab."""
    here = tab == current
    label = f" {tab}" if named or here else ""
    key, style = key_of(TABS[tab], keys), STRONG if here else DIM
    spans = (("[" if here else " ", STRONG), (key, KEY), (label, style), ("]" if here else " ", STRONG))
    return [(text, link(style, tab_action(tab))) for text, style in spans]


class KeyItem(NamedTuple):
    """A part of the line of keys."""

    importance: int
    """0 always stays. Higher numbers are dropped first."""
    spans: Row


def item(importance: int, pressed: str, word: str, action: str = "") -> KeyItem:
    """Return keys and their actions as a part of the line."""
    return _linked(importance, action, (pressed, KEY), (f" {word}", DIM))


def _linked(importance: int, action: str, *spans: Span) -> KeyItem:
    """Return a part of the line that runs an action when it is clicked."""
    return KeyItem(importance, tuple((text, link(style, action)) for text, style in spans) if action else spans)


@functools.lru_cache(maxsize=16)
def item_row(items: tuple[KeyItem, ...], width: int) -> Row:
    """Return the items that have room."""
    kept = list(items)
    while cells(span for one in kept for span in one.spans) + 2 * len(kept) > width + 1:
        least = max(one.importance for one in kept)
        if not least:
            break
        kept = [one for one in kept if one.importance < least]
    row: list[Span] = [(" ", TEXT)]
    for one in kept:
        row += [*([("  ", TEXT)] if len(row) > 1 else []), *one.spans]
    return fit(row, width)


def hint_row(hints: Sequence[Hint], width: int) -> Row:
    """Return the keys with their actions. The last two always stay."""
    always = len(hints) - 2
    items = [item(place + 1 if place < always else 0, *hint) for place, hint in enumerate(hints)]
    return item_row(tuple(items), width)


def keys_row(snapshot: Snapshot, view: Display, width: int, *, hides: bool = False) -> Row:
    """Return the keys that apply now, with the key to the lanes that the screen `hides`."""
    turns = [_item(0, "focus.next", "next", view.keys)] if hides else []
    return item_row((*turns, *_items(snapshot, view)), width)


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
    return _linked(importance, action, *spans)

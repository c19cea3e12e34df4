"""The parts that fit a terminal, and the lines of tabs and keys. Pure."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tfmon.model.knobs import short_name
from tfmon.model.lane_state import PAUSED, RACING
from tfmon.model.periods import why_mode_stays
from tfmon.model.race import TURNS
from tfmon.model.session import Snapshot
from tfmon.ui.keys import BY_ID, TABS, key_of, tab_action
from tfmon.ui.render.rows import DIM, TEXT, Row, Span, cells, fit
from tfmon.ui.render.style import KEY, STRONG, link
from tfmon.ui.source import Display, shared_value, shows, targets

MIN_PANE_WIDTH, MIN_PANE_HEIGHT = 40, 12
LEAST_HEIGHT_WITH_TABS = 30
MIN_LINE_WIDTH = 24
MIN_HEIGHT_ALONE = 6
"""Of the pane of a single lane."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The rows of each part of the screen."""

    kind: Literal["panes", "table", "lines", "tiny"]
    """`table`: not all lanes fit as panes; `tiny`: the terminal is too small."""
    width: int
    body: int
    keys: int
    tabs: int = 0
    verdict: int = 0
    status: int = 0
    lanes: range = range(0)
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
    """Divide cells evenly, as a grid of Textual does."""
    ends = [cells * number // count for number in range(count + 1)]
    return [end - start for start, end in itertools.pairwise(ends)]


def arrange(width: int, height: int, lanes: int, focused: int | None = None, result: int = 0) -> Layout:
    """Lay out a screen: panes, or lines if not all lanes fit."""
    if width < MIN_LINE_WIDTH or height < 1:
        return Layout("tiny", width, height, 0)
    verdict = 0 if lanes == 1 else 1 if height < 20 else 2 if height < 30 else 3
    status = 0 if height < 18 else 1
    tabs = 1 if height >= LEAST_HEIGHT_WITH_TABS else 0
    if result:
        verdict = max(1, min(result, height - 2 - status - tabs - MIN_PANE_HEIGHT))
    area = height - 2 - verdict - status - tabs
    # As many lanes as possible in as few rows as possible.
    most_columns = max(1, width // MIN_PANE_WIDTH)
    visible = max(1, min(lanes, most_columns * (area // MIN_PANE_HEIGHT)))
    rows = -(-visible // most_columns)
    columns = -(-visible // rows)
    per_page = columns * rows
    too_small = width < MIN_PANE_WIDTH or area < (MIN_HEIGHT_ALONE if lanes == 1 else MIN_PANE_HEIGHT)
    if too_small or (per_page < lanes and focused is None):
        if lanes > 1 and area > lanes:
            return Layout("table", width, area, 1, tabs, verdict, status, per_page=0 if too_small else per_page)
        keys = 1 if height >= lanes + 2 else 0
        return Layout("lines", width, height - keys, keys)
    first = (focused or 0) // per_page * per_page
    shown = range(first, min(lanes, first + per_page))
    columns = max(1, min(columns, len(shown)))
    return Layout("panes", width, area, 1, tabs, verdict, status, shown, columns, per_page)


class Hint(NamedTuple):
    """The action of a key in this state."""

    key: str
    word: str
    action: str = ""


def tab_row(
    names: Sequence[str], current: str, keys: Mapping[str, str], width: int, *, alone: bool = False
) -> Row:
    """Return the tabs with their keys. Without room, words are dropped first. `alone`: there is only one lane."""
    shown = [tab for tab in TABS if tab in names]
    titles = {tab: "run" if alone and tab == "race" else tab for tab in shown}
    parts = [_tab_spans(tab, current, keys, titles[tab]) for tab in shown]
    if sum(map(cells, parts)) > width:
        parts = [_tab_spans(tab, current, keys, titles[tab] if tab == current else "") for tab in shown]
    while sum(map(cells, parts)) > width and shown[0] != current and current in names:
        shown, parts = shown[1:], parts[1:]
    return fit([span for part in parts for span in part], width)


def _tab_spans(tab: str, current: str, keys: Mapping[str, str], title: str) -> list[Span]:
    here = tab == current
    label = f" {title}" if title else ""
    key, style = key_of(TABS[tab], keys), STRONG if here else DIM
    spans = (("[" if here else " ", STRONG), (key, KEY), (label, style), ("]" if here else " ", STRONG))
    return [(text, link(style, tab_action(tab))) for text, style in spans]


@functools.lru_cache(maxsize=16)
def hint_row(hints: tuple[Hint, ...], width: int) -> Row:
    """Return the first keys that fit, and always the last two."""
    parts: list[Row] = [_hint_spans(*hint) for hint in hints]
    while len(parts) > 2 and sum(cells(part) + 2 for part in parts) > width + 1:
        del parts[-3]
    return fit(
        [span for place, part in enumerate(parts) for span in ((" " * min(2, place + 1), TEXT), *part)], width
    )


def _hint_spans(key: str, word: str, action: str = "") -> Row:
    spans = ((key, KEY), (f" {word}", DIM))
    return tuple((text, link(style, action)) for text, style in spans) if action else spans


def keys_row(snapshot: Snapshot, view: Display, width: int, *, hides: bool = False) -> Row:
    """Return the keys that apply now. `hides`: some lanes are not displayed."""
    shown = [("focus.next", "next")] if hides else []
    pair = f"{key_of('batch.down', view.keys)}/{key_of('batch.up', view.keys)}"
    written = {"batch.up": pair}
    hints = [
        Hint(written.get(id) or key_of(id, view.keys), word, BY_ID[id].action)
        for id, word in (*shown, *_race_keys(snapshot, view))
    ]
    return hint_row(tuple(hints), width)


def _race_keys(snapshot: Snapshot, view: Display) -> Iterator[tuple[str, str]]:
    script = any(lane.script.command for lane in snapshot.lanes)
    if view.stopping:
        yield "quit", "leave at once"
        return
    if shows(snapshot, view):
        yield "picture", "save"
        if not view.readonly:
            yield "restart", "again"
        yield "report", "report"
        if not view.readonly and not script:
            yield "scenario", "another scenario"
    elif not view.readonly:
        yield from _changing_keys(snapshot, view, script=script)
    if snapshot.lanes:
        yield "lane.detail", "detail"
        yield "zoom", ("all lanes" if len(snapshot.lanes) > 1 else "back") if view.zoomed else "zoom"
        yield "lane.log", "log"
        yield "copy", "copy"
    yield "help", "help"
    yield "quit", "leave" if snapshot.over else "quit"


_KNOB_KEYS = {"batch_size": "batch.up", "prefetch": "prefetch.next"}


def _changing_keys(snapshot: Snapshot, view: Display, *, script: bool) -> Iterator[tuple[str, str]]:
    lanes, knobs = targets(snapshot.lanes, view.focused), {knob.name for knob in snapshot.race.knobs}
    for knob in (knob for knob in snapshot.race.knobs if knob.name in _KNOB_KEYS):
        now, requested = shared_value(lanes, knob)
        yield _KNOB_KEYS[knob.name], f"{short_name(knob.name)} {now}{f' → {requested}' if requested else ''}"
    if any(lane.phase == RACING for lane in lanes):
        yield "pause", "pause"
    elif any(lane.phase == PAUSED for lane in lanes):
        yield "pause", "resume"
    if lanes:
        yield "restart", "restart"
    if not script:
        yield "scenario", "scenario"
        if any(lane.points for lane in lanes):
            yield "try", "try advice"
    if knobs:
        yield "knobs", "knobs"
    if not script and not why_mode_stays(snapshot.lanes):
        yield "mode", "at once" if snapshot.race.mode == TURNS else "turns"
    if not script and len(snapshot.lanes) == 2 and all(lane.points for lane in snapshot.lanes):
        yield "crossover", "crossover"

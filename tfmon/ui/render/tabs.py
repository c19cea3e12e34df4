"""The line of tabs above the race and every page, and the line of the keys that apply at the bottom. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tfmon.model.knobs import Knob, short_name
from tfmon.model.lane_state import PAUSED, RACING, LaneState
from tfmon.model.periods import why_mode_stays
from tfmon.model.race import TURNS
from tfmon.model.session import Snapshot
from tfmon.ui.keys import BY_ID, key_of
from tfmon.ui.render import final
from tfmon.ui.render.bars import Zone
from tfmon.ui.render.layout import Rect
from tfmon.ui.render.rows import Row, Span, cells, crop, fit
from tfmon.ui.render.style import DIM, KEY, STRONG, TEXT
from tfmon.ui.requests import shared_value, targets
from tfmon.ui.view import View


@dataclass(frozen=True, slots=True)
class Tab:
    """A page that stands beside the race."""

    name: str
    binding: str
    """Id of the key that shows it from anywhere."""

    @property
    def action(self) -> str:
        """What that key does; the race is shown where all else is closed."""
        return "show_tab('race')" if self.name == "race" else BY_ID[self.binding].action


TABS = (
    Tab("race", "close"),
    Tab("lane", "lane.detail"),
    Tab("log", "lane.log"),
    Tab("knobs", "knobs"),
    Tab("profile", "lane.profile"),
    Tab("gpus", "gpus"),
    Tab("doctor", "doctor"),
    Tab("runs", "runs"),
)
TAB_NAMES = tuple(tab.name for tab in TABS)


@dataclass(frozen=True, slots=True)
class Hint:
    """What keys do here and now."""

    bindings: tuple[str, ...]
    """Ids of the keys, in the order in which they are written."""
    word: str
    action: str = ""
    """What a click on it does; empty for nothing."""


def tab_row(names: Sequence[str], current: str, keys: Mapping[str, str], width: int) -> tuple[Row, list[Zone]]:
    """Return the tabs with their keys, the current one in brackets, and where each can be clicked.

    Where the width is short, the words go before the keys do; the current tab keeps its word, and stays longest.
    """
    shown = [tab for tab in TABS if tab.name in names]
    parts = [_tab_spans(tab, current, keys, words=True) for tab in shown]
    if sum(map(cells, parts)) > width:
        parts = [_tab_spans(tab, current, keys, words=False) for tab in shown]
    while sum(map(cells, parts)) > width and shown[0].name != current and current in names:
        shown, parts = shown[1:], parts[1:]
    row: list[Span] = []
    zones: list[Zone] = []
    for tab, spans in zip(shown, parts, strict=True):
        zones.append(Zone(Rect(cells(row), 0, cells(spans), 1), tab.action))
        row += spans
    return fit(row, width), zones


def _tab_spans(tab: Tab, current: str, keys: Mapping[str, str], *, words: bool) -> list[Span]:
    """Return a tab with its key, in brackets if it is the current one, with its word or without."""
    here = tab.name == current
    label = f" {tab.name}" if words or here else ""
    key, style = key_of(tab.binding, keys), STRONG if here else DIM
    return [("[" if here else " ", STRONG), (key, KEY), (label, style), ("]" if here else " ", STRONG)]


@dataclass(frozen=True, slots=True)
class Item:
    """A part of the line of keys."""

    importance: int
    """0 always stays; the highest goes first when the line is too long."""
    spans: tuple[Span, ...]
    action: str = ""
    """What a click on it does; empty for nothing."""
    knob: str = ""
    """The knob that the wheel turns on it; empty for none."""


def item(importance: int, pressed: str, word: str, action: str = "") -> Item:
    """Return keys and what they do as a part of the line."""
    return Item(importance, ((pressed, KEY), (f" {word}", DIM)), action)


def item_row(items: Sequence[Item], width: int, y: int) -> tuple[Row, list[Zone]]:
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
    return fit(row, width), zones


def hint_row(hints: Sequence[Hint], keys: Mapping[str, str], width: int, y: int) -> tuple[Row, list[Zone]]:
    """Return the keys with their actions, and where each is clicked; the last two stay longest, then the first."""
    last = len(hints) - 1
    items = [
        item(
            place + 2 if place < last - 1 else last - place,
            " ".join(key_of(one, keys) for one in hint.bindings),
            hint.word,
            hint.action,
        )
        for place, hint in enumerate(hints)
    ]
    return item_row(items, width, y)


# ---------------------------------------------------------------- the keys of the race


def keys_row(snapshot: Snapshot, view: View, width: int, y: int, *, hides: bool = False) -> tuple[Row, list[Zone]]:
    """Return the keys that apply now, and where each can be clicked; that to the lanes that the screen `hides`."""
    turns = [_item(0, "focus.next", "next", view.keys)] if hides else []
    return item_row([*turns, *_items(view.live or snapshot, view)], width, y)


def _items(snapshot: Snapshot, view: View) -> Iterator[Item]:
    """Yield the keys that apply, from left to right."""
    keys, script = view.keys, any(lane.command for lane in snapshot.lanes)
    if view.stopping:
        yield _item(0, "quit", "leave at once", keys)
        return
    if final.shows(snapshot, view):
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


def _of_a_race(snapshot: Snapshot, view: View, *, script: bool) -> Iterator[Item]:
    """Yield the keys that change a race that runs."""
    lanes, keys = targets(snapshot.lanes, view.focused), view.keys
    for knob in snapshot.race.knobs:
        if knob.name == "prefetch":
            yield _knob_item(key_of("prefetch.next", keys), knob, lanes, "step_knob('prefetch', 1)")
        elif knob.name == "batch_size":
            pair = f"{key_of('batch.down', keys)}/{key_of('batch.up', keys)}"
            yield _knob_item(pair, knob, lanes, "step_knob('batch_size', 1)")
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


def _item(importance: int, binding: str, word: str, keys: Mapping[str, str]) -> Item:
    return item(importance, key_of(binding, keys), word, BY_ID[binding].action)


def _knob_item(key: str, knob: Knob, lanes: Sequence[LaneState], action: str) -> Item:
    now, requested = shared_value(lanes, knob)
    spans: list[Span] = [(key, KEY), (f" {short_name(knob.name)} ", DIM), (crop(now, 12), TEXT)]
    if requested:
        spans.append((f" → {crop(requested, 8)} requested", DIM))
    return Item(1, tuple(spans), action, knob.name)

"""The line of tabs above the race and every page, and the line of keys below a page. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfmon.ui.keys import BY_ID, key_of
from tfmon.ui.render.bars import Zone
from tfmon.ui.render.layout import Rect
from tfmon.ui.render.rows import Row, Span, cells, fit
from tfmon.ui.render.style import DIM, KEY, STRONG, TEXT


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

    Where the width is short, the words go before the keys do; the current tab keeps its word.
    """
    row: list[Span] = []
    zones: list[Zone] = []
    for words in (True, False):
        row, zones = [], []
        for tab in TABS:
            if tab.name not in names:
                continue
            here = tab.name == current
            key = key_of(tab.binding, keys)
            label = f" {tab.name}" if words or here else ""
            spans: list[Span] = [("[" if here else " ", STRONG), (key, KEY), (label, STRONG if here else DIM)]
            spans.append(("]" if here else " ", STRONG))
            zones.append(Zone(Rect(cells(row), 0, cells(spans), 1), tab.action))
            row += spans
        if cells(row) <= width:
            break
    return fit(row, width), zones


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
    """Return what keys do, and where that can be clicked; the last two stay longest, then the first."""
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

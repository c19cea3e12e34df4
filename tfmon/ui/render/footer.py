"""The bottom line: the keys that apply here and now. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tfmon.model.knobs import Knob, short_name
from tfmon.model.lane_state import PAUSED, RACING, LaneState
from tfmon.model.race import TURNS
from tfmon.model.session import Snapshot, why_mode_stays
from tfmon.ui.keys import BY_ID, key_of
from tfmon.ui.render import final
from tfmon.ui.render.bars import Zone
from tfmon.ui.render.rows import Row, Span, crop
from tfmon.ui.render.style import DIM, KEY, TEXT
from tfmon.ui.render.tabs import Item, item, item_row
from tfmon.ui.requests import shared_value, targets
from tfmon.ui.view import View


def keys_row(snapshot: Snapshot, view: View, width: int, y: int, *, hides: bool = False) -> tuple[Row, list[Zone]]:
    """Return the keys that apply now, and where each can be clicked; that to the lanes that the screen `hides`."""
    turns = [_item(0, "focus.next", "next", view.keys)] if hides else []
    return item_row([*turns, *_items(snapshot, view)], width, y)


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
    if not why_mode_stays(snapshot) and not script:
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

"""The bottom lines: what the last key press came to, and the keys with the value of each knob. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfmon import units
from tfmon.model.knobs import Knob
from tfmon.model.lane_state import PAUSED, RACING, LaneState
from tfmon.model.session import TURNS, Recorded, Snapshot
from tfmon.ui.keys import key_of
from tfmon.ui.layout import Rect
from tfmon.ui.rows import Row, Span, cells, crop, fit, spread
from tfmon.ui.style import DIM, KEY, TEXT, WARN, strong
from tfmon.ui.view import View
from tfmon.ui.wishes import shared_value, short_name, targets


@dataclass(frozen=True, slots=True)
class Zone:
    """A stretch of the screen that a click acts on."""

    rect: Rect
    action: str


@dataclass(frozen=True, slots=True)
class _Item:
    importance: int
    """0 always stays; the highest goes first when the line is too long."""
    spans: tuple[Span, ...]
    action: str


def status_row(snapshot: Snapshot, view: View, per_page: int, width: int) -> Row:
    """Return the last message, or which lanes the keys act on."""
    right: Row = ()
    lanes = snapshot.lanes
    if per_page and per_page < len(lanes):
        names = [lane.spec.name for lane in lanes]
        first = (names.index(view.focused) if view.focused in names else 0) // per_page * per_page
        last = min(len(lanes), first + per_page)
        shown = f"lane {first + 1}" if first + 1 == last else f"lanes {first + 1} to {last}"
        right = ((f"{shown} of {len(lanes)}, Tab shows the others ", DIM),)
    return spread(_status(snapshot, view), right, width)


def _status(snapshot: Snapshot, view: View) -> Row:
    if message := message_of(view, snapshot.at_ns):
        return ((f"   {message}", strong(WARN)),)
    if snapshot.recording is not None and snapshot.recording.why:
        return ((f"   {_not_recorded(snapshot, snapshot.recording)}", strong(WARN)),)
    titles = {lane.spec.name: lane.title for lane in snapshot.lanes}
    if view.focused is not None:
        words = f"   keys act on {titles.get(view.focused, view.focused)} only · "
        return ((words, TEXT), (key_of("focus.all", view.keys), KEY), (" all lanes", DIM))
    if len(snapshot.lanes) < 2:
        return ()
    return (("   keys act on all lanes · ", DIM), (key_of("focus.next", view.keys), KEY), (" picks one", DIM))


def _not_recorded(snapshot: Snapshot, recording: Recorded) -> str:
    """Say since when the race is not recorded, and why."""
    if not recording.path:
        return f"this race is not recorded: {recording.why}"
    began_ns = snapshot.race.started_ns
    since_s = 0.0 if began_ns is None or recording.stopped_ns is None else (recording.stopped_ns - began_ns) / 1e9
    return f"recording stopped at {units.clock(max(0.0, since_s))}: {recording.why}"


def message_of(view: View, now_ns: int) -> str:
    """Return the line that is to be said now; empty if there is none."""
    if view.stopping:
        return f"stopping the lanes… {key_of('quit', view.keys)} again leaves at once"
    return view.message if now_ns < view.message_until_ns else ""


def keys_row(snapshot: Snapshot, view: View, width: int, y: int) -> tuple[Row, list[Zone]]:
    """Return the keys with the values they change, and where each can be clicked."""
    items = _items(snapshot, view)
    for least in range(9, 0, -1):
        kept = [item for item in items if item.importance < least]
        gap = 2
        if sum(cells(item.spans) + gap for item in kept) <= width:
            break
    spans: list[Span] = []
    zones: list[Zone] = []
    x = 1
    for item in kept:
        size = cells(item.spans)
        if x > 1:
            spans.append((" " * gap, TEXT))
            x += gap
        spans += item.spans
        zones.append(Zone(Rect(x, y, size, 1), item.action))
        x += size
    return fit(((" ", TEXT), *spans), width), zones


def _items(snapshot: Snapshot, view: View) -> list[_Item]:
    lanes = targets(snapshot.lanes, view.focused)
    keys = view.keys
    items = []
    for knob in snapshot.race.knobs:
        if knob.name == "prefetch":
            items.append(_knob_item(key_of("prefetch.next", keys), knob, lanes, "step_knob('prefetch', 1)"))
        elif knob.name == "batch_size":
            pair = f"{key_of('batch.down', keys)}/{key_of('batch.up', keys)}"
            items.append(_knob_item(pair, knob, lanes, "step_knob('batch_size', 1)"))
    running = any(lane.phase == RACING for lane in lanes) or not any(lane.phase == PAUSED for lane in lanes)
    items += [
        _item(3, "pause", "pause" if running else "go on", "pause_or_run", keys),
        _item(7, "mode", "at once" if snapshot.race.mode == TURNS else "turns", "switch_mode", keys),
        _item(5, "restart", "restart", "restart", keys),
        _item(6, "knobs", "knobs", "show_knobs", keys),
        _item(4, "scenario", "scenario", "pick_scenario", keys),
        _item(6, "try", "try advice", "try_advice", keys),
        _item(8, "crossover", "crossover", "show_crossover", keys),
        _item(8, "lane.detail", "detail", "show_lane", keys),
        _item(2, "help", "help", "show_help", keys),
        _item(0, "quit", "quit", "app.quit", keys),
    ]
    return items


def _item(importance: int, binding: str, word: str, action: str, keys: Mapping[str, str]) -> _Item:
    return _Item(importance, ((key_of(binding, keys), KEY), (" " + word, DIM)), action)


def _knob_item(key: str, knob: Knob, lanes: Sequence[LaneState], action: str) -> _Item:
    now, asked = shared_value(lanes, knob)
    spans: list[Span] = [(key, KEY), (f" {short_name(knob.name)} ", DIM), (crop(now, 12), TEXT)]
    if asked:
        spans.append((f" {crop(asked, 8)} asked", DIM))
    return _Item(1, tuple(spans), action)

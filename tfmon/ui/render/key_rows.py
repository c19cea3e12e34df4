"""The rows of tabs and keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tfmon.model.knobs import short_name
from tfmon.model.lane_events import PAUSED, RACING
from tfmon.model.periods import why_mode_stays
from tfmon.model.ports import ReplayState
from tfmon.model.race import TURNS
from tfmon.model.session import Snapshot
from tfmon.ui.keys import BY_ID, TABS, key_of, tab_action
from tfmon.ui.render.rows import DIM, TEXT, Row, Span, cells, fit
from tfmon.ui.render.style import KEY, STRONG, link
from tfmon.ui.source import Display, shared_value, shows, targets


class Hint(NamedTuple):
    """A key with its current action."""

    key: str
    word: str
    action: str = ""


def tab_row(
    names: Sequence[str], current: str, keys: Mapping[str, str], width: int, *, alone: bool = False
) -> Row:
    """Return the tabs with their keys. In a narrow terminal, names are dropped first. `alone`: one lane."""

    def spans(tab: str, title: str) -> list[Span]:
        style, ends = (STRONG, "[]") if tab == current else (DIM, "  ")
        texts = ((ends[0], STRONG), (key_of(TABS[tab], keys), KEY), (title, style), (ends[1], STRONG))
        return [(text, link(text_style, tab_action(tab))) for text, text_style in texts]

    shown = [(tab, " run" if alone and tab == "race" else f" {tab}") for tab in TABS if tab in names]
    parts = [spans(tab, title) for tab, title in shown]
    if sum(map(cells, parts)) > width:
        parts = [spans(tab, title if tab == current else "") for tab, title in shown]
    while sum(map(cells, parts)) > width and shown[0][0] != current and current in names:
        shown, parts = shown[1:], parts[1:]
    return fit([span for part in parts for span in part], width)


def hint_row(hints: Iterable[Hint], width: int) -> Row:
    """Return the keys that fit, and always the last two."""
    parts = [[(key, link(KEY, action)), (f" {word}", link(DIM, action))] for key, word, action in hints]
    while len(parts) > 2 and sum(cells(part) + 2 for part in parts) > width + 1:
        del parts[-3]
    row: list[Span] = []
    for part in parts:
        row += [("  " if row else " ", TEXT), *part]
    return fit(row, width)


def keys_row(snapshot: Snapshot, view: Display, width: int, *, hides: bool = False) -> Row:
    """Return the keys that apply now. `hides`: not all lanes are displayed."""
    pair = f"{key_of('batch.down', view.keys)}/{key_of('batch.up', view.keys)}"
    shown = (*([("focus.next", "next")] if hides else []), *_race_keys(snapshot, view))
    texts = ((pair if id == "batch.up" else key_of(id, view.keys), id, word) for id, word in shown)
    return hint_row((Hint(text, word, BY_ID[id].action) for text, id, word in texts), width)


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


_PLAYBACK = (
    ("replay.back", "replay.on", "5 s"), ("replay.slower", "replay.faster", "speed"),
    ("replay.step.back", "replay.step", "step"), ("replay.mark.back", "replay.mark", "mark"),
)  # fmt: skip


def replay_keys_row(replay: ReplayState, view: Display, width: int) -> Row:
    """Return the keys of a replay."""
    play = ("replay.pause", "pause" if replay.playing else "play")
    rows = (play, *_PLAYBACK, ("help", "help"), ("quit", "back" if view.above else "quit"))
    return hint_row((Hint(" ".join(key_of(id, view.keys) for id in ids), word) for *ids, word in rows), width)

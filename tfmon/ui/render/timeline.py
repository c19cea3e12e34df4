"""The two bottom lines of a replay: how far it is, with what happened in the race, and its keys. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from tfmon import units
from tfmon.model.ports import Mark, ReplayState
from tfmon.ui.keys import key_of
from tfmon.ui.render.rows import Row, Span, cells, crop, fit
from tfmon.ui.render.style import DIM, STRONG, TEXT, TROUBLE, WARN, strong
from tfmon.ui.render.tabs import item, item_row

_FOOT = (
    ("replay.back", "replay.on", "5 s", 1), ("replay.step.back", "replay.step", "step", 3),
    ("replay.slower", "replay.faster", "speed", 2), ("replay.mark.back", "replay.mark", "mark", 4),
)  # fmt: skip
_SIGNS = {"knob": ("┬", STRONG), "request": ("·", STRONG), "trouble": ("✗", strong(TROUBLE))}
_RANKS = {"request": 0, "knob": 1, "trouble": 2}
TOLD_NS = 4_000_000_000
"""How long the words of a mark are shown."""
LEAST_BAR = 10


def timeline_row(replay: ReplayState, width: int) -> tuple[Row, int, int]:
    """Return the line, and where its bar begins and how long it is (0 where there is no room for one)."""
    state = "end" if replay.at_end else f"replay ×{replay.speed}" if replay.playing else "paused"
    left: list[Span] = [(f" {state:<11}", strong(WARN)), (f"{_clock(replay, replay.at_ns)} ", STRONG)]
    right: list[Span] = [(f" {_clock(replay, replay.to_ns)}", TEXT)]
    words = [(f"  event {replay.event} of {replay.events}", DIM), *_told(replay)]
    for span in words:
        if cells(left) + cells(right) + cells([span]) + 3 * LEAST_BAR <= width:
            right.append(span)
    size = width - cells(left) - cells(right) - 1
    if size < LEAST_BAR:
        return fit(left, width), 0, 0
    return fit((*left, *bar(replay, size), *right), width), cells(left), size


def bar(replay: ReplayState, width: int) -> list[Span]:
    """Draw the time line: what was played, the current moment, what is left, and the marks."""
    at = cell_of(replay, replay.at_ns, width)
    spans: list[Span] = [("━", TEXT) if place < at else ("─", DIM) for place in range(width)]
    for mark in sorted(replay.marks, key=lambda mark: _RANKS[mark.kind]):
        spans[cell_of(replay, mark.at_ns, width)] = _SIGNS[mark.kind]
    spans[at] = ("█", strong(WARN))
    return spans


def cell_of(replay: ReplayState, at_ns: int, width: int) -> int:
    """Return the cell of a moment on a bar of that width."""
    span_ns = max(1, replay.to_ns - replay.from_ns)
    return max(0, min(width - 1, (at_ns - replay.from_ns) * (width - 1) // span_ns))


def time_of(replay: ReplayState, cell: int, width: int) -> int:
    """Return the moment of a cell of the bar."""
    return replay.from_ns + (replay.to_ns - replay.from_ns) * cell // max(1, width - 1)


def keys_row(replay: ReplayState, keys: Mapping[str, str], message: str, width: int, leaves: str = "quit") -> Row:
    """Return the keys of the replay, or the message."""
    if message:
        return fit([(f" {message}", strong(WARN))], width)
    items = [
        item(importance, " ".join(key_of(one, keys) for one in pair if one), word)
        for *pair, word, importance in (("replay.pause", "pause" if replay.playing else "play", 0), *_FOOT)
    ]
    items += [item(0, key_of("help", keys), "help"), item(0, key_of("quit", keys), leaves)]
    return item_row(items, width, 0)[0]


def _told(replay: ReplayState) -> list[Span]:
    """Return what is wrong with the recording, or the words of the mark that was just passed."""
    if replay.note:
        return [(f"  {crop(replay.note, 60)}", strong(WARN))]
    found: list[Mark] = [mark for mark in replay.marks if replay.at_ns - TOLD_NS <= mark.at_ns <= replay.at_ns]
    return [(f"  {crop(found[-1].text, 40)}", STRONG)] if found else []


def _clock(replay: ReplayState, at_ns: int) -> str:
    """Write a moment as the header does: since the start signal."""
    return units.signed_clock((at_ns - (replay.from_ns if replay.started_ns is None else replay.started_ns)) / 1e9)

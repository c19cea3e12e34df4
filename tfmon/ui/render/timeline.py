"""A replay's time line."""

from __future__ import annotations

from rich.cells import cell_len

from tfmon import units
from tfmon.model.ports import ReplayState
from tfmon.ui.render.rows import DIM, TEXT, Row, Span, cells, crop, fit
from tfmon.ui.render.style import STRONG, TROUBLE, WARN, link, strong

_SIGNS = {"request": ("·", STRONG), "knob": ("┬", STRONG), "trouble": ("✗", strong(TROUBLE))}
"""Later marks cover earlier marks."""
MARK_NS = 4_000_000_000
LEAST_BAR = 10


def timeline_row(replay: ReplayState, width: int) -> Row:
    """Return the time line; a click on a cell of its bar goes to that moment."""
    speed = "" if replay.speed == 1 and not replay.playing else f" ×{replay.speed}"
    state = "end" if replay.at_end else f"{'replay' if replay.playing else 'paused'}{speed}"
    begin, now, end = (_clock(replay, at_ns) for at_ns in (replay.from_ns, replay.at_ns, replay.to_ns))
    longest = max(len(begin), len(end))
    left: list[Span] = [(f" {state:<11}", strong(WARN)), (f"{now:>{longest}}  ", STRONG), (f"{begin} ", TEXT)]
    right: list[Span] = [(f" {end}", TEXT)]
    count = f"  event {replay.event:>{len(str(replay.events))}} of {replay.events}"
    passed = [mark for mark in replay.marks if replay.at_ns - MARK_NS <= mark.at_ns <= replay.at_ns]
    note, style = crop(passed[-1].text, 40) if passed else "", STRONG
    longest = max((cell_len(crop(mark.text, 40)) for mark in replay.marks), default=0)
    if replay.note:
        note, style = crop(replay.note, 60), strong(WARN)
        longest = cell_len(note)
    for part, size in (((count, DIM), cell_len(count)), ((f"  {note}", style), longest + 2)):
        if cells(left) + cells(right) + size + 3 * LEAST_BAR <= width:
            right += fit([part], size)
    size = width - cells(left) - cells(right) - 1
    if size < LEAST_BAR:
        return tuple(left[:2])
    return (*left, *_bar(replay, size), *right)


def _bar(replay: ReplayState, width: int) -> list[Span]:
    span_ns = max(1, replay.to_ns - replay.from_ns)

    def cell_of(at_ns: int) -> int:
        return max(0, min(width - 1, (at_ns - replay.from_ns) * (width - 1) // span_ns))

    current = cell_of(replay.at_ns)
    spans: list[Span] = [("━", TEXT) if cell < current else ("─", DIM) for cell in range(width)]
    for mark in sorted(replay.marks, key=lambda mark: [*_SIGNS].index(mark.kind)):
        spans[cell_of(mark.at_ns)] = _SIGNS[mark.kind]
    spans[current] = ("█", strong(WARN))
    times_ns = (replay.from_ns + span_ns * cell // (width - 1) for cell in range(width))
    return [(text, link(style, f"go_to({at_ns})")) for (text, style), at_ns in zip(spans, times_ns, strict=True)]


def _clock(replay: ReplayState, at_ns: int) -> str:
    return units.signed_clock((at_ns - (replay.from_ns if replay.started_ns is None else replay.started_ns)) / 1e9)

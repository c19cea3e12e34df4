"""A replay's time line."""

from __future__ import annotations

from tfmon import units
from tfmon.model.ports import ReplayState
from tfmon.ui.render.rows import DIM, TEXT, Row, Span, cell_len, cells, crop, fit
from tfmon.ui.render.style import STRONG, TROUBLE, WARN, strong

_SIGNS = {"request": ("·", STRONG), "knob": ("┬", STRONG), "trouble": ("✗", strong(TROUBLE))}
"""Later marks cover earlier marks."""
MARK_NS = 4_000_000_000
LEAST_BAR = 10


def timeline_row(replay: ReplayState, width: int) -> tuple[Row, int, int]:
    """Return the time line, and the start and length of the bar in cells."""
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
        return tuple(left[:2]), 0, 0
    return (*left, *_bar(replay, size), *right), cells(left), size


def _bar(replay: ReplayState, width: int) -> list[Span]:
    def cell_of(at_ns: int) -> int:
        span_ns = max(1, replay.to_ns - replay.from_ns)
        return max(0, min(width - 1, (at_ns - replay.from_ns) * (width - 1) // span_ns))

    current = cell_of(replay.at_ns)
    spans: list[Span] = [("━", TEXT) if cell < current else ("─", DIM) for cell in range(width)]
    for mark in sorted(replay.marks, key=lambda mark: [*_SIGNS].index(mark.kind)):
        spans[cell_of(mark.at_ns)] = _SIGNS[mark.kind]
    spans[current] = ("█", strong(WARN))
    return spans


def time_at(replay: ReplayState, cell: int, width: int) -> int | None:
    """Return the moment at a cell in ns, or None beside the bar."""
    _, start, size = timeline_row(replay, width)
    if not start <= cell < start + size:
        return None
    return replay.from_ns + (replay.to_ns - replay.from_ns) * (cell - start) // max(1, size - 1)


def _clock(replay: ReplayState, at_ns: int) -> str:
    return units.signed_clock((at_ns - (replay.from_ns if replay.started_ns is None else replay.started_ns)) / 1e9)

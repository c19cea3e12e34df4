"""The lines below the panes: who is ahead, what that is worth, why there is no GPU lane. Pure."""

from __future__ import annotations

from tfmon.model.session import Snapshot
from tfmon.model.trials import KEPT
from tfmon.race.standing import Standing
from tfmon.race.tuning import news
from tfmon.ui.rows import BLANK, Row, wrap
from tfmon.ui.style import DIM, STRONG, TEXT, lane_style, strong

_LEAD_CELLS = 6
"""Cells before the text."""


def verdict_rows(snapshot: Snapshot, said: Standing, undo_key: str, width: int, height: int) -> list[Row]:
    """Return `height` rows: the verdict, what was tried, the verdict's note, and the line about a missing GPU."""
    if not snapshot.lanes:
        return [BLANK] * height
    rows: list[Row] = [verdict_row(snapshot, said, width)]
    room = height - 1
    spare = 1 if height >= 5 else 0
    room -= spare
    for line in wrap(_tried(snapshot, undo_key), width - 4, min(2, room)):
        rows.append((("   " + line, STRONG),))
    room -= len(rows) - 1
    no_gpu = f"no GPU lane: {snapshot.machine.no_gpu}" if snapshot.machine.no_gpu else ""
    for line in wrap(said.note, width - 4, max(0, room - (1 if no_gpu else 0))):
        rows.append((("   " + line, DIM),))
    for line in wrap(no_gpu, width - 4, height - spare - len(rows)):
        rows.append((("   " + line, TEXT),))
    rows = [BLANK] * spare + rows
    return (rows + [BLANK] * height)[:height]


def _tried(snapshot: Snapshot, undo_key: str) -> str:
    """Say what is tried on a lane, or what came of it and how to take it back."""
    said, state = news(snapshot), snapshot.tuned
    kept = said and state is not None and state.over and state.latest and state.latest.outcome == KEPT
    return f"{said} · {undo_key} to undo" if kept else said


def verdict_row(snapshot: Snapshot, said: Standing, width: int) -> Row:
    """Return who is ahead in one line, in the winner's accent; by letters where names have no room."""
    text = said.text if len(said.text) + _LEAD_CELLS <= width else said.short or said.text
    for index, lane in enumerate(snapshot.lanes):
        if lane.spec.name == said.winner:
            return (
                (" ▲ ", strong(lane_style(index))),
                (f"{lane.spec.letter}  ", strong(lane_style(index))),
                (text, STRONG),
            )
    return (("   ", TEXT), (text, TEXT))

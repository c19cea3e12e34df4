"""The lines below the panes: who is ahead, what that is worth, why there is no GPU lane. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tfmon import units
from tfmon.analysis.tuning import news
from tfmon.analysis.verdict import Verdict
from tfmon.model.lane_state import ABSENT, FAILED
from tfmon.model.race import KEPT
from tfmon.model.session import Snapshot
from tfmon.ui.render.rows import BLANK, Row, wrap
from tfmon.ui.render.style import DIM, STRONG, TEXT, lane_style, strong
from tfmon.ui.view import View

_LEAD_CELLS = 6
"""Cells before the text."""


def verdict_rows(snapshot: Snapshot, said: Verdict, undo_key: str, width: int, height: int) -> list[Row]:
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


def verdict_row(snapshot: Snapshot, said: Verdict, width: int) -> Row:
    """Return who is ahead in one line, in the winner's accent; by ids where names have no room."""
    text = said.text if len(said.text) + _LEAD_CELLS <= width else said.short or said.text
    for index, lane in enumerate(snapshot.lanes):
        if lane.spec.name == said.winner:
            return (
                (" ▲ ", strong(lane_style(index))),
                (f"{lane.spec.id}  ", strong(lane_style(index))),
                (text, STRONG),
            )
    return (("   ", TEXT), (text, TEXT))


# ---------------- how far a race is whose length was said: by seconds or by steps. Pure


BAR_CELLS = 20


def progress_row(snapshot: Snapshot) -> Row:
    """Return a bar and how much is done; empty before the start, after the end, and where no length is known.

    Of steps, those of the lane that has done the fewest count: the race ends with it.
    """
    race = snapshot.race
    still = [lane for lane in snapshot.lanes if not lane.over]
    if race.started_ns is None or not still:
        return ()
    if race.seconds is not None:
        share = (snapshot.at_ns - race.started_ns) / 1e9 / race.seconds
        words = f"{100 * min(1.0, share):.0f} % of {units.clock(race.seconds)}"
    elif race.steps is not None:
        done = min(lane.steps for lane in still)
        share = done / race.steps
        words = f"{units.count(done)} of {units.count(race.steps)} steps"
    else:
        return ()
    filled = round(BAR_CELLS * max(0.0, min(1.0, share)))
    return (("▓" * filled, TEXT), ("░" * (BAR_CELLS - filled), DIM), (f" {words} ", DIM))


# ---------------- what was lost sight of: lanes that failed while the user looked at something else. Pure


def watched(view: View, snapshot: Snapshot, in_sight: Collection[str]) -> View:
    """Return the view with what failed since: seen if the lane was in sight, else lost until it is acknowledged.

    A lane that trains again is neither.
    """
    failed = [lane.spec.name for lane in snapshot.lanes if lane.phase in (FAILED, ABSENT)]
    new = [name for name in failed if name not in view.lost and name not in view.seen]
    lost = (*(name for name in view.lost if name in failed), *(name for name in new if name not in in_sight))
    seen = (*(name for name in view.seen if name in failed), *(name for name in new if name in in_sight))
    return view if (lost, seen) == (view.lost, view.seen) else replace(view, lost=lost, seen=seen)


def acknowledged(view: View) -> View:
    """Return the view after the user has taken note."""
    return replace(view, lost=(), seen=(*view.seen, *view.lost))


def pinned_line(view: View, snapshot: Snapshot, key: str) -> str:
    """Say which lane failed out of sight, when and why, and the key that takes this line away; "" for none."""
    lost = [lane for lane in snapshot.lanes if lane.spec.name in view.lost]
    if not lost:
        return ""
    lane, others = lost[0], len(lost) - 1
    ago = units.clock((snapshot.at_ns - lane.phase_since_ns) / 1e9)
    more = f" (and {others} more)" if others else ""
    why = f": {lane.trouble.message}" if lane.trouble is not None else ""
    return f"{lane.title}{more} {lane.phase} {ago} ago, out of sight ({key}){why}"

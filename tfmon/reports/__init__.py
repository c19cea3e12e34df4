"""Results as text for people and as JSON for programs. What all reports share stands here.

Every JSON object names its `schema` and the version of tfmon. Units are in the names of the keys; what is not
known is null.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from typing import Any

import tfmon
from tfmon import units
from tfmon.analysis.analysis import Analysis
from tfmon.analysis.history import HEADS
from tfmon.analysis.scaling import Scaling
from tfmon.model.collisions import collision_lines
from tfmon.model.lane_state import LaneState
from tfmon.model.readings import Estimate
from tfmon.model.session import Snapshot
from tfmon.model.views import describe
from tfmon.recordings.header import RESULT_SCHEMA

_NO_BREAK = "\u00a0"


def head() -> dict[str, Any]:
    """Return the keys that every object begins with."""
    return {"schema": RESULT_SCHEMA, "tfmon": tfmon.__version__}


def interval(estimate: Estimate | None) -> list[float] | None:
    """Return the ends of an estimate's 95 % interval."""
    return None if estimate is None else [estimate.low, estimate.high]


def estimate_json(name: str, estimate: Estimate | None) -> dict[str, Any]:
    """Return an estimate and its 95 % interval, under its name and the name with `_ci95`."""
    return {name: None if estimate is None else estimate.value, f"{name}_ci95": interval(estimate)}


def scaling_json(one: Scaling) -> dict[str, Any]:
    """Return how throughput grows from fewer devices to more."""
    return {
        "devices": one.devices,
        "over_devices": one.over,
        **estimate_json("ratio", one.ratio),
        "of_linear": one.of_linear,
    }


def lane_json(lane: LaneState) -> dict[str, Any]:
    """Return the name of a lane, and where it trains."""
    spec = lane.spec
    return {"id": spec.id, "name": spec.name, "host": spec.host, "device": spec.device}


def recording_json(snapshot: Snapshot) -> dict[str, Any]:
    """Return where the race was recorded, and why the recording stopped."""
    found = snapshot.recording
    return {
        "recording": found.path or None if found else None,
        "recording_stopped": found.reason or None if found else None,
    }


def recording_lines(snapshot: Snapshot) -> list[str]:
    """Return the same in words; nothing for a race that was not recorded."""
    found = snapshot.recording
    if found is None:
        return []
    stopped = [f"recording stopped: {found.reason}"] if found.reason else []
    return stopped + ([f"recorded in {found.path}"] if found.path else [])


def view_lines(snapshot: Snapshot) -> list[str]:
    """Return how the lanes of a script saw the working folder, and what they wrote there."""
    views = snapshot.race.views
    lines = describe(views) + collision_lines(snapshot.lanes, views)
    written = [
        f"{name} {units.several(files, 'file')}, {units.memory(size)}"
        for view in views.values()
        for name, (files, size) in view.written.items()
        if files
    ]
    if written:
        lines.append(f"written by {'; '.join(written)}: tfmon runs --files RUN lists it")
    if edited := ", ".join(name for view in views.values() for name in view.edited):
        lines.append(f"edited in the working folder while the lanes ran, and perhaps seen by them: {edited}")
    return lines


def fitted(text: str) -> str:
    """Return a text whose lines are broken between words where the terminal that shows it is narrower."""
    lines = []
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()))
        lines += _wrapped(line, indent) or [""]
    return "\n".join(lines)


def _wrapped(line: str, indent: str) -> list[str]:
    import shutil
    import textwrap

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    return textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def history_table(found: Analysis) -> list[Sequence[str]]:
    """Return the history of a race as a table, the head first; none where nothing was changed."""
    rows = [row.cells(found.snapshot) for row in found.history]
    return [HEADS, *rows] if rows else []


def table(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Return rows as lines whose columns are as wide as they must be.

    Where the terminal is narrower: a line with the first cell of each row, then the others with their heads.

    Args:
        rows: Cells of every row, the head first.
        right: Places of the columns that are aligned to the right.
    """
    from rich.cells import cell_len

    widths = [max(cell_len(cell) for cell in column) for column in zip(*rows, strict=True)]

    def padded(cell: str, place: int) -> str:
        space = " " * (widths[place] - cell_len(cell))
        return space + cell if place in right else cell + space

    lines = ["  ".join(padded(cell, place) for place, cell in enumerate(row)).rstrip() for row in rows]
    if all(len(_wrapped(line, "")) < 2 for line in lines):
        return lines
    lines = []
    for first, *cells in rows[1:]:
        named = [
            f"{head} {cell}".replace(" ", _NO_BREAK) for head, cell in zip(rows[0][1:], cells, strict=True) if cell
        ]
        told = _wrapped("  " + "   ".join(named), "  ")
        lines += [first, *(line.replace(_NO_BREAK, " ") for line in told)]
    return lines

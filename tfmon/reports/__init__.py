"""Results as text for people and as JSON for programs. What all reports share stands here.

Every JSON object names its `schema` and the version of tfmon. Units are in the names of the keys; what is not
known is null.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import tfmon
from tfmon import units
from tfmon.analysis.scaling import Scaling
from tfmon.model.collisions import collision_lines
from tfmon.model.lane_state import LaneState
from tfmon.model.readings import Estimate
from tfmon.model.session import Snapshot
from tfmon.model.views import describe

SCHEMA = 2
"""Of every JSON object. 2: `bottleneck` was `bound`; `error` and `reason` were `why`; `gpu_memory_*` were
`gpu_memory_held_bytes` and `gpu_memory_in_use_bytes`."""


def head() -> dict[str, Any]:
    """Return the keys that every object begins with."""
    return {"schema": SCHEMA, "tfmon": tfmon.__version__}


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
    """Return what a lane is called, and where it trains."""
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
    lines = describe(snapshot.race.views) + collision_lines(snapshot.lanes, snapshot.race.views)
    lanes = [(lane, lane.written) for lane in snapshot.lanes if lane.written is not None]
    wrote = [f"{lane.title} {_files(one.files)}, {units.memory(one.bytes)}" for lane, one in lanes if one.files]
    if wrote:
        lines.append(f"written by {'; '.join(wrote)}: tfmon runs --files RUN lists it")
    for lane, one in lanes:
        if one.dropped:
            lines.append(f"not kept of {lane.title}, beyond view_files: {', '.join(one.dropped)}")
    if edited := list(dict.fromkeys(name for _, one in lanes for name in one.edited)):
        names = ", ".join(edited)
        lines.append(f"edited in the working folder while the lanes ran, and perhaps seen by them: {names}")
    return lines


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count:,} files"


def table(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Return rows as lines whose columns are as wide as they must be.

    Args:
        rows: Cells of every row, the head first.
        right: Places of the columns that are aligned to the right.
    """
    from rich.cells import cell_len

    widths = [max(cell_len(cell) for cell in column) for column in zip(*rows, strict=True)]

    def padded(cell: str, place: int) -> str:
        space = " " * (widths[place] - cell_len(cell))
        return space + cell if place in right else cell + space

    return ["  ".join(padded(cell, place) for place, cell in enumerate(row)).rstrip() for row in rows]

"""Reports: each kind is described once as sections, and written as text, Markdown and HTML; JSON is beside it.

Every JSON object names its `schema` and the version of tfmon. Units are in the names of the keys; what is not
known is null.
"""

from __future__ import annotations

from typing import Any

import tfmon
from tfmon import units
from tfmon.analysis.verdict_notes import Scaling
from tfmon.model.lane_state import LaneState
from tfmon.model.lanes_together import collision_lines
from tfmon.model.readings import Estimate
from tfmon.model.session import Snapshot
from tfmon.model.views import describe
from tfmon.recordings.header import SCHEMA


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

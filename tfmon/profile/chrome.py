"""A trace as JSON for trace viewers: https://ui.perfetto.dev, chrome://tracing.

Source: "Trace TraceEvent Format", the document of the Chrome developers; its complete events (`ph` is X).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tfmon.profile.trace import Space, Stat, TraceError, TraceEvent

_EXACT = 1 << 53
"""JavaScript knows whole numbers exactly only up to here; larger ones are identities, and are written as text."""


def trace_events(space: Space) -> Iterator[dict[str, Any]]:
    """Go through a trace: the names of its planes and lines, then their events.

    Units: `ts` and `dur` are microseconds, as the format has it.
    """
    for process, plane in enumerate(space.planes, start=1):
        if not any(line.events for line in plane.lines):
            continue
        yield _named("process_name", plane.name, process)
        for thread, line in enumerate(plane.lines, start=1):
            yield _named("thread_name", line.name, process, thread)
            for event in line.events:
                yield _complete(event, process, thread)


def write_chrome(space: Space, path: Path) -> int:
    """Write a trace as one JSON object, and return how many events it has.

    Errors: TraceError when the file cannot be written.
    """
    count = 0
    try:
        with path.open("w", encoding="utf-8") as file:
            file.write('{"displayTimeUnit":"ms","traceEvents":[')
            for item in trace_events(space):
                file.write(",\n" if count else "\n")
                json.dump(item, file, separators=(",", ":"), allow_nan=False)
                count += 1
            file.write("\n]}\n")
    except OSError as error:
        raise TraceError(f"{path} cannot be written: {error.strerror or error}") from error
    return count


def _named(kind: str, name: str, process: int, thread: int = 0) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _complete(event: TraceEvent, process: int, thread: int) -> dict[str, Any]:
    item: dict[str, Any] = {
        "ph": "X",
        "name": event.name,
        "pid": process,
        "tid": thread,
        "ts": event.start_ps / 1e6,
        "dur": (event.end_ps - event.start_ps) / 1e6,
    }
    if event.stats:
        item["args"] = {name: _plain(value) for name, value in event.stats.items()}
    return item


def _plain(value: Stat) -> Stat:
    if isinstance(value, int):
        return value if abs(value) < _EXACT else str(value)
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value

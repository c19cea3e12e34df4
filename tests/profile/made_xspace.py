"""Writes made traces as files, by TensorFlow's protobuf classes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfmon.profile.trace import Plane, Space


def write_xspace(space: Space, path: Path) -> None:
    """Write a trace as TensorFlow's profiler does: planes, lines, events, and names by numbers."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    trace = xplane_pb2.XSpace()
    for number, plane in enumerate(space.planes):
        _write(plane, trace.planes.add(id=number, name=plane.name))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(trace.SerializeToString())


def _write(plane: Plane, to: Any) -> None:
    def numbers(metadata: Any) -> Callable[[str], int]:
        known: dict[str, int] = {}

        def number_of(name: str) -> int:
            if name not in known:
                known[name] = len(known) + 1
                metadata[known[name]].id, metadata[known[name]].name = known[name], name
            return known[name]

        return number_of

    event_number, stat_number = numbers(to.event_metadata), numbers(to.stat_metadata)
    for place, line in enumerate(plane.lines, start=1):
        written = to.lines.add(id=place, name=line.name, display_name=line.name, timestamp_ns=1_000)
        for event in line.events:
            length_ps = event.end_ps - event.start_ps
            one = written.events.add(
                metadata_id=event_number(event.name), offset_ps=event.start_ps, duration_ps=length_ps
            )
            for name, value in event.stats.items():
                field = "str_value" if isinstance(value, str) else "int64_value"
                one.stats.add(metadata_id=stat_number(name), **{field: value})

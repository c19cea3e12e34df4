"""Reads TensorFlow's profiles in the process that has TensorFlow, by its own protobuf classes.

Source: `XSpace` in tsl/profiler/protobuf/xplane.proto.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from tfmon.profile.trace import Line, Plane, Space, Stat, TraceError, TraceEvent

Wanted: TypeAlias = Callable[[str, str, Collection[str]], bool]
"""Whether to read the events of a line, by its name, theirs, and the names of all events that there may be."""


def everything(_line: str, _event: str, _names: Collection[str]) -> bool:
    """Accept every event."""
    return True


def read_space(path: Path, wanted: Wanted = everything) -> Space:
    """Return the trace in a `.xplane.pb` file, with those of its events that are wanted.

    Events that only count, without a place in time, are skipped. `wanted` is called once a name and line.

    Raises: TraceError, also when there is no such file.
    """
    try:
        from google.protobuf.message import DecodeError
        from tensorflow.tsl.profiler.protobuf import xplane_pb2
    except ImportError as error:
        raise TraceError(f"this TensorFlow has no classes to read its profiles with: {error}") from error
    trace = xplane_pb2.XSpace()
    try:
        trace.ParseFromString(path.read_bytes())
    except OSError as error:
        raise TraceError(f"the profile {path.name} cannot be read: {error.strerror or error}") from error
    except DecodeError as error:
        raise TraceError("this is not a TensorFlow profile, or a damaged one") from error
    origin_ns = min((line.timestamp_ns for plane in trace.planes for line in plane.lines), default=0)
    planes = tuple(_plane(plane, origin_ns, wanted) for plane in trace.planes)
    events = sum(len(line.events) for plane in trace.planes for line in plane.lines)
    return Space(planes, origin_ns, events, (*trace.errors, *trace.warnings))


def _plane(plane: Any, origin_ns: int, wanted: Wanted) -> Plane:  # noqa: ANN401 - protobuf's classes have no types
    names = {number: one.name for number, one in plane.event_metadata.items()}
    stats = {number: one.name for number, one in plane.stat_metadata.items()}
    return Plane(plane.name, tuple(_line(line, origin_ns, names, stats, wanted) for line in plane.lines))


def _line(
    line: Any,  # noqa: ANN401
    origin_ns: int,
    names: Mapping[int, str],
    stats: Mapping[int, str],
    wanted: Wanted,
) -> Line:
    title = line.display_name or line.name
    read = {number for number in names if wanted(title, names[number], names.values())}
    shift_ps = (line.timestamp_ns - origin_ns) * 1000
    events = []
    for event in line.events:
        number = event.metadata_id
        if (number not in read and number in names) or event.HasField("num_occurrences"):
            continue
        start_ps, duration_ps = shift_ps + event.offset_ps, event.duration_ps
        if duration_ps < 0:
            raise TraceError("the profile is damaged: an event ends before it begins")
        name = names.get(number, "")
        events.append(TraceEvent(start_ps, start_ps + duration_ps, name, _stats(event, stats)))
    events.sort(key=lambda event: (event[0], -event[1]))
    return Line(title, tuple(events))


def _stats(event: Any, names: Mapping[int, str]) -> dict[str, Stat]:  # noqa: ANN401
    """Return the stats of an event, without bytes, which are compiled programs."""
    found: dict[str, Stat] = {}
    for stat in event.stats:
        kind = stat.WhichOneof("value")
        if kind is not None and kind != "bytes_value":
            value = getattr(stat, kind)
            found[names.get(stat.metadata_id, "")] = names.get(value, "") if kind == "ref_value" else value
    return found

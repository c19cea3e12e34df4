"""A trace: planes of lines of events."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from tfmon.errors import TfmonError
from tfmon.model.fast_dataclass import dataclass

Stat: TypeAlias = float | int | str
Interval: TypeAlias = tuple[int, int]

STEP, CALL = "train", "step call"
"""A lane marks each step and its call; before the call the step takes the batch. The lane's clocks do the same."""


ALLOCATION, DEALLOCATION = "MemoryAllocation", "MemoryDeallocation"

PIPELINE = "tf_data_"
"""Prefix of the input pipeline's threads."""


class TraceError(TfmonError):
    """A file is not a TensorFlow profile of training steps."""


class TraceEvent(NamedTuple):
    """Times in ps since the earliest line. A tuple, because a trace may have a million."""

    start_ps: int
    end_ps: int
    name: str
    stats: Mapping[str, Stat]

    @property
    def span(self) -> Interval:
        """Start and end."""
        return self.start_ps, self.end_ps


@dataclass(frozen=True, slots=True)
class TraceLine:
    """A thread, or a queue of a device."""

    name: str
    events: tuple[TraceEvent, ...]
    """Sorted by start, outer ones first."""


@dataclass(frozen=True, slots=True)
class Plane:
    """The host or a device."""

    name: str
    lines: tuple[TraceLine, ...]


@dataclass(frozen=True, slots=True)
class Space:
    """A whole trace."""

    planes: tuple[Plane, ...]
    events: int = 0
    troubles: tuple[str, ...] = ()


class Times(list[Interval]):
    """Moments, as sorted intervals that neither overlap nor touch."""

    def __init__(self, intervals: Iterable[Interval] = ()) -> None:
        super().__init__()
        for start, end in sorted(intervals):
            if start >= end:
                continue
            if not self or start > self[-1][1]:
                self.append((start, end))
            elif end > self[-1][1]:
                self[-1] = (self[-1][0], end)

    @property
    def total(self) -> int:
        """The duration."""
        return sum(end - start for start, end in self)

    def __and__(self, other: Times) -> Times:
        intervals: list[Interval] = []
        i = j = 0
        while i < len(self) and j < len(other):
            intervals.append((max(self[i][0], other[j][0]), min(self[i][1], other[j][1])))
            if self[i][1] < other[j][1]:
                i += 1
            else:
                j += 1
        return Times(intervals)

    def __sub__(self, other: Times) -> Times:
        intervals: list[Interval] = []
        j = 0
        for begin, end in self:
            start = begin
            while j < len(other) and other[j][1] <= start:
                j += 1
            k = j
            while k < len(other) and other[k][0] < end:
                intervals.append((start, other[k][0]))
                start = max(start, other[k][1])
                k += 1
            intervals.append((start, end))
        return Times(intervals)


_EXACT = 1 << 53
"""JavaScript's largest exact integer; larger numbers are identities."""


def trace_events(space: Space) -> Iterator[dict[str, Any]]:
    """Yield Chrome's entries for planes, lines and events, in µs."""
    for process, plane in enumerate(space.planes, start=1):
        if any(line.events for line in plane.lines):
            yield _metadata("process_name", plane.name, process)
            for thread, line in enumerate(plane.lines, start=1):
                yield _metadata("thread_name", line.name, process, thread)
                yield from (_complete(event, process, thread) for event in line.events)


def write_chrome(space: Space, path: Path) -> int:
    """Write a trace as JSON; return the number of entries; raises TraceError."""
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


def _metadata(kind: str, name: str, process: int, thread: int = 0) -> dict[str, Any]:
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


Wanted: TypeAlias = Callable[[str, str, Collection[str]], bool]
"""Called with the names of a line, an event, and all events."""


def everything(_line: str, _event: str, _names: Collection[str]) -> bool:
    """Accept every event."""
    return True


def read_space(path: Path, wanted: Wanted = everything) -> Space:
    """Return the trace in a `.xplane.pb` file; raises TraceError.

    `wanted` is called once a name and line. Events without a time are skipped.
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
    return Space(planes, events, (*trace.errors, *trace.warnings))


def _plane(plane: Any, origin_ns: int, wanted: Wanted) -> Plane:
    names = {number: metadata.name for number, metadata in plane.event_metadata.items()}
    stats = {number: metadata.name for number, metadata in plane.stat_metadata.items()}
    return Plane(plane.name, tuple(_line(line, origin_ns, names, stats, wanted) for line in plane.lines))


def _line(
    line: Any,
    origin_ns: int,
    names: Mapping[int, str],
    stats: Mapping[int, str],
    wanted: Wanted,
) -> TraceLine:
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
    return TraceLine(title, tuple(events))


def _stats(event: Any, names: Mapping[int, str]) -> dict[str, Stat]:
    result: dict[str, Stat] = {}
    for stat in event.stats:
        kind = stat.WhichOneof("value")
        if kind is not None and kind != "bytes_value":
            value = getattr(stat, kind)
            result[names.get(stat.metadata_id, "")] = names.get(value, "") if kind == "ref_value" else value
    return result

"""The numbers of a recording."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, fields, is_dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TextIO

from tfmon.analysis.speed_changes import changes_of
from tfmon.model import codec
from tfmon.model.event_base import Event
from tfmon.model.events import LaneEnded, LanePrinted, LaneStarted
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.gpu_samples import GpuSample
from tfmon.model.header import Header
from tfmon.model.knobs import KnobValue, show
from tfmon.model.lane_events import Finished, KnobApplied, LaneFailed, PhaseEntered, Progressed, Window
from tfmon.model.readings import HostSample, TreeSample
from tfmon.model.session import Snapshot
from tfmon.model.windows import LaneWindow, quantile_ms
from tfmon.recordings.header_lines import mark_of
from tfmon.recordings.player import end_of
from tfmon.recordings.reader import Recording, guard

CPU, MEMORY, BUSY = "cpu_pct", "private_bytes", "busy_pct"
USED, POWER, HEAT = "used_bytes", "power_w", "temperature_c"
CHARTED = (CPU, MEMORY, BUSY, USED, POWER, HEAT)
WITHOUT_NUMBERS = (Progressed, LanePrinted)
_NOT_MEASURED = ("at_ns", "index", "every_s", "pids", "since_ns", "until_ns")
LEAD_NS = 10_000_000_000


@dataclass(frozen=True, slots=True)
class Sample:
    """A number; the unit is in the name."""

    at_ns: int
    subject: str
    """A lane, `machine`, `gpu:0`, or `gpu2/machine`."""
    name: str
    value: KnobValue
    step: int | None = None
    note: str = ""

    @property
    def since_ns(self) -> int:
        """The start of the sample, which has no duration."""
        return self.at_ns


@dataclass(frozen=True, slots=True)
class Moment:
    """A marked moment of the charts."""

    at_ns: int
    text: str
    lane: str = ""
    gap_ns: int = 0


@dataclass(slots=True)
class Course:
    """The course of a recorded race."""

    header: Header
    torn: bool
    end: Snapshot
    windows: Mapping[str, Sequence[LaneWindow]]
    samples: dict[str, dict[str, list[Sample]]] = field(default_factory=dict)
    """By name and subject."""
    moments: list[Moment] = field(default_factory=list)

    @property
    def since_ns(self) -> int:
        """The time of the start signal or first window."""
        if self.end.race.started_ns is not None:
            return self.end.race.started_ns
        starts = [window[0].since_ns for window in self.windows.values() if window]
        return min(starts, default=self.header.started_ns)

    @property
    def until_ns(self) -> int:
        """The end of the last window."""
        return max((window[-1].at_ns for window in self.windows.values() if window), default=self.since_ns)

    def seconds(self, at_ns: float) -> float:
        """Return the seconds since the start signal."""
        return (at_ns - self.since_ns) / 1e9


def gather(path: Path) -> Course:
    """Play a recording and collect its course; raises RecordingError."""
    with guard(path), Recording(path) as recording:
        end, names = end_of(recording), recording.header.lane_names
        windows = {lane.spec.name: (*lane.measurements.old, *lane.points) for lane in end.lanes}
        course = Course(recording.header, recording.torn, end, windows)
        racing: set[str] = set()
        for event in recording.events(without=(*WITHOUT_NUMBERS, Window)):
            match event:
                case TreeSample() | HostSample() | GpuSample():
                    _keep(course, event, racing)
                case PhaseEntered(phase="racing"):
                    racing.add(event.lane)
                case PhaseEntered() | LaneFailed() | Finished() | LaneEnded() | LaneStarted():
                    racing.discard(event.lane)
                case KnobApplied():
                    text = f"{event.knob} {show(event.value)}"
                    course.moments.append(Moment(event.at_ns, text, event.lane, event.gap_ns))
            if not isinstance(event, KnobApplied):
                course.moments += (Moment(mark.at_ns, mark.text) for mark in mark_of(event, names))
    course.moments += (
        Moment(change.at_ns, f"{lane.spec.id} {change.brief}", lane.spec.name)
        for lane in end.lanes
        for change in changes_of(lane)
    )
    course.moments.sort(key=lambda moment: moment.at_ns)
    return course


def _keep(course: Course, event: TreeSample | HostSample | GpuSample, racing: Collection[str]) -> None:
    of_lane = isinstance(event, TreeSample)
    for sample in samples_of(event) if event.at_ns >= course.since_ns - LEAD_NS else ():
        if sample.name in CHARTED and (not of_lane or sample.name != CPU or sample.subject in racing):
            # A lane may be called gpu:0, too.
            subject = sample.subject if of_lane else sample.subject.replace("gpu:", "GPU ")
            course.samples.setdefault(sample.name, {}).setdefault(subject, []).append(sample)


def write_json(recording: Recording, result: dict[str, Any], target: TextIO) -> None:
    """Write a JSON object with every number; raises RecordingError and OSError.

    `time` is UTC; `seconds` counts from the first event; `value` is in the unit at the end of `name`.
    """
    encode, between = json.JSONEncoder(allow_nan=False).encode, "\n"
    target.write('{\n"header": ' + encode(codec.plain(recording.header)))
    target.write(',\n"result": ' + encode(result))
    target.write(',\n"samples": [')
    for event in recording.events(without=WITHOUT_NUMBERS):
        if rows := list(_rows(recording, event)):
            target.write(between + encode(rows)[1:-1])
            between = ",\n"
    target.write("\n]\n}\n")


def _rows(recording: Recording, event: Event) -> Iterator[dict[str, Any]]:
    time = datetime.fromtimestamp(recording.header.wall_s(event.at_ns), timezone.utc).isoformat()
    seconds = round((event.at_ns - recording.times_ns[0]) / 1e9, 6)
    for sample in samples_of(event):
        finite = not isinstance(sample.value, float) or math.isfinite(sample.value)
        yield {
            "time": time,
            "seconds": seconds,
            "subject": sample.subject,
            "step": sample.step,
            "name": sample.name,
            "value": sample.value if finite else str(sample.value),
            "note": sample.note,
        }


def samples_of(event: Event) -> Iterator[Sample]:
    """Return the numbers in an event."""
    match event:
        case Window():
            yield from _of_window(event)
        case TreeSample():
            yield from _of_fields(event, event.at_ns, event.lane)
        case HostSample():
            yield from _of_fields(event, event.at_ns, f"{event.host}/machine" if event.host else "machine")
        case GpuSample():
            device = f"{'hidden ' if event.hidden else ''}gpu:{event.index}"
            yield from _of_fields(event, event.at_ns, f"{event.host}/{device}" if event.host else device)
        case LaneStarted():
            for knob, value in event.settings.items():
                yield Sample(event.at_ns, event.lane, f"knob/{knob}", value, 0)
        case KnobApplied():
            yield Sample(event.at_ns, event.lane, f"knob/{event.knob}", event.value, event.step)


def _of_window(window: Window) -> Iterator[Sample]:
    values: dict[str, float | None] = {"loss": window.loss, "longest_ms": window.longest_ns / 1e6}
    if window.span_ns > 0:
        values["examples_per_s"] = window.examples / window.span_ns * 1e9
        values["steps_per_s"] = window.steps / window.span_ns * 1e9
        for name in ("input_ns", "call_ns", "sync_ns", "report_ns"):
            values[name.removesuffix("_ns") + "_pct"] = 100 * getattr(window, name) / window.span_ns
    for name, fraction in (("step_p50_ms", 0.5), ("step_p95_ms", 0.95)):
        values[name] = quantile_ms(window.histogram, fraction)
    for name in ("gpu_memory_allocated_bytes", "gpu_memory_peak_bytes"):
        values[name] = getattr(window, name)
    for name, value in values.items():
        if value is not None:
            yield Sample(window.at_ns, window.lane, name, value, window.step, "; ".join(window.marks))


def _of_fields(parts: object, at_ns: int, subject: str) -> Iterator[Sample]:
    kind: type = type(parts)
    for name in _measured(kind):
        value = getattr(parts, name)
        if type(value) in (int, float):
            yield Sample(at_ns, subject, name, value)
        elif is_dataclass(value):
            yield from _of_fields(value, at_ns, subject)


@functools.cache
def _measured(kind: type) -> list[str]:
    return [part.name for part in fields(kind) if part.name not in _NOT_MEASURED]

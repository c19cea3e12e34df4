"""The numbers of a recording, for charts and other programs."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from tfmon.analysis.speed_changes import changes_of
from tfmon.model import codec, histogram
from tfmon.model.events import Event, LaneEnded, LanePrinted, LaneStarted
from tfmon.model.gpu_samples import GpuSample
from tfmon.model.header import Header
from tfmon.model.knobs import KnobValue, show
from tfmon.model.lane_events import Finished, KnobApplied, LaneFailed, PhaseEntered, Window
from tfmon.model.readings import HostSample, TreeSample
from tfmon.model.script_events import Progressed
from tfmon.model.session import Snapshot
from tfmon.model.windows import LaneWindow
from tfmon.recordings.header_lines import mark_of
from tfmon.recordings.player import end_of
from tfmon.recordings.reader import Recording, guard

CPU, MEMORY, BUSY, USED, POWER, HEAT = "cpu", "memory", "busy", "used", "power", "heat"
_QUANTITIES = {
    "cpu_pct": CPU, "private_bytes": MEMORY, "busy_pct": BUSY, "used_bytes": USED, "power_w": POWER,
    "temperature_c": HEAT,
}  # fmt: skip
LEAD_NS = 10_000_000_000


class Sample(NamedTuple):
    """One reading, in its own unit."""

    at_ns: int
    value: float

    @property
    def since_ns(self) -> int:
        """It takes no time."""
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
    samples: dict[str, dict[str, list[Sample]]]
    moments: list[Moment]

    @property
    def since_ns(self) -> int:
        """The start signal, or the first window."""
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
        end, keeper = end_of(recording), _Keeper(recording.header.lane_names)
        for event in recording.events(without=(*WITHOUT_NUMBERS, Window)):
            keeper.take(event)
    keeper.moments += (
        Moment(change.at_ns, f"{lane.spec.id} {change.brief}", lane.spec.name)
        for lane in end.lanes
        for change in changes_of(lane)
    )
    keeper.moments.sort(key=lambda one: one.at_ns)
    windows = {lane.spec.name: (*lane.measurements.old, *lane.points) for lane in end.lanes}
    course = Course(recording.header, recording.torn, end, windows, keeper.samples, keeper.moments)
    since_ns = course.since_ns - LEAD_NS
    for of in course.samples.values():
        for subject, samples in of.items():
            of[subject] = [sample for sample in samples if sample.at_ns >= since_ns]
    return course


@dataclass(slots=True)
class _Keeper:
    names: Mapping[str, str]
    samples: dict[str, dict[str, list[Sample]]] = field(default_factory=dict)
    moments: list[Moment] = field(default_factory=list)
    racing: set[str] = field(default_factory=set)

    def take(self, event: Event) -> None:
        match event:
            case TreeSample():
                self._sampled(event, without="" if event.lane in self.racing else CPU)
                return
            case HostSample() | GpuSample():
                self._sampled(event)
                return
            case PhaseEntered(phase="racing"):
                self.racing.add(event.lane)
            case PhaseEntered() | LaneFailed() | Finished() | LaneEnded() | LaneStarted():
                self.racing.discard(event.lane)
            case KnobApplied():
                text = f"{event.knob} {show(event.value)}"
                self.moments.append(Moment(event.at_ns, text, event.lane, event.gap_ns))
                return
        self.moments += (Moment(mark.at_ns, mark.text) for mark in mark_of(event, self.names))

    def _sampled(self, event: Event, without: str = "") -> None:
        for sample in samples_of(event):
            what = _QUANTITIES.get(sample.name)
            if what and what != without:
                # A GPU must not be taken for the lane of that name.
                subject = (
                    sample.subject if isinstance(event, TreeSample) else sample.subject.replace("gpu:", "GPU ")
                )
                of = self.samples.setdefault(what, {}).setdefault(subject, [])
                of.append(Sample(sample.at_ns, float(sample.value)))


def write_json(recording: Recording, result: dict[str, Any], target: TextIO) -> None:
    """Write one object with every number; raises RecordingError and OSError.

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


WITHOUT_NUMBERS = (Progressed, LanePrinted)
_NOT_MEASURED = ("at_ns", "index", "every_s", "pids", "since_ns", "until_ns")


@dataclass(frozen=True, slots=True)
class ExportedSample:
    """One number; the unit is in its name."""

    at_ns: int
    subject: str
    """A lane, `machine`, `gpu:0`, or `gpu2/machine`."""
    name: str
    value: KnobValue
    step: int | None = None
    note: str = ""


def samples_of(event: Event) -> Iterator[ExportedSample]:
    """Return the numbers in an event."""
    match event:
        case Window():
            yield from _of_window(event)
        case TreeSample():
            yield from _of_fields(event, event.at_ns, event.lane)
        case HostSample():
            yield from _of_fields(event, event.at_ns, f"{event.host}/machine" if event.host else "machine")
        case GpuSample():
            which = f"{'hidden ' if event.hidden else ''}gpu:{event.index}"
            yield from _of_fields(event, event.at_ns, f"{event.host}/{which}" if event.host else which)
        case LaneStarted():
            for knob, value in event.settings.items():
                yield ExportedSample(event.at_ns, event.lane, f"knob/{knob}", value, 0)
        case KnobApplied():
            yield ExportedSample(event.at_ns, event.lane, f"knob/{event.knob}", event.value, event.step)


def _of_window(window: Window) -> Iterator[ExportedSample]:
    values: dict[str, float | None] = {"loss": window.loss, "longest_ms": window.longest_ns / 1e6}
    if window.span_ns > 0:
        values["examples_per_s"] = window.examples / window.span_ns * 1e9
        values["steps_per_s"] = window.steps / window.span_ns * 1e9
        for name in ("input_ns", "call_ns", "sync_ns", "report_ns"):
            values[name.removesuffix("_ns") + "_pct"] = 100 * getattr(window, name) / window.span_ns
    for name, fraction in (("step_p50_ms", 0.5), ("step_p95_ms", 0.95)):
        quantile_ns = histogram.quantile_ns(window.histogram, fraction)
        values[name] = None if quantile_ns is None else quantile_ns / 1e6
    for name in ("gpu_memory_allocated_bytes", "gpu_memory_peak_bytes"):
        values[name] = getattr(window, name)
    for name, value in values.items():
        if value is not None:
            yield ExportedSample(window.at_ns, window.lane, name, value, window.step, "; ".join(window.marks))


def _of_fields(parts: object, at_ns: int, subject: str) -> Iterator[ExportedSample]:
    kind: type = type(parts)
    for name in _measured(kind):
        value = getattr(parts, name)
        if type(value) in (int, float):
            yield ExportedSample(at_ns, subject, name, value)
        elif is_dataclass(value):
            yield from _of_fields(value, at_ns, subject)


@functools.cache
def _measured(kind: type) -> list[str]:
    return [part.name for part in fields(kind) if part.name not in _NOT_MEASURED]

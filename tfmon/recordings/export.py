"""Writes a recording for other programs, as JSON."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import datetime, timezone
from typing import Any, TextIO

from tfmon.model import codec
from tfmon.model import window_sums as histogram
from tfmon.model.events import Event, LanePrinted, LaneStarted
from tfmon.model.knobs import KnobValue
from tfmon.model.lane_events import KnobApplied, Progressed, Window
from tfmon.model.readings import GpuSample, HostSample, TreeSample
from tfmon.recordings.reader import Recording


def write_json(recording: Recording, result: dict[str, Any], target: TextIO) -> None:
    """Write one object: header, result of the race, and every number; raises RecordingError and OSError.

    Units: `time` is UTC; `seconds` counts from the first event; `value` is in the unit that `name` ends in.
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


# ---------------- events as series of numbers


WITHOUT_NUMBERS = (Progressed, LanePrinted)
"""Events that come often and have none."""
_NOT_MEASURED = ("at_ns", "index", "every_s", "pids", "shares_since_ns", "shares_until_ns")
_SHARES = ("input_ns", "call_ns", "sync_ns", "report_ns")


@dataclass(frozen=True, slots=True)
class ExportedSample:
    """One number; the unit is in its name."""

    at_ns: int
    subject: str
    """The lane, `machine`, or a GPU such as `gpu:0`; of another machine, with its host: `gpu2/machine`."""
    name: str
    value: KnobValue
    step: int | None = None
    """Steps that the lane had done; None for numbers that are not about its steps."""
    note: str = ""
    """Why a window is discarded; empty for steady state."""


def samples_of(event: Event) -> Iterator[ExportedSample]:
    """Return the numbers in an event; what was not measured has no number.

    Units: `at_ns` is the end of what the number is about; see `model.lane_events`.
    """
    match event:
        case Window():
            yield from _of_window(event)
        case TreeSample():
            yield from _of_fields(event, event.lane)
        case HostSample():
            yield from _of_fields(event, _subject("machine", event.host))
        case GpuSample():
            which = f"{'hidden ' if event.hidden else ''}gpu:{event.index}"
            yield from _of_fields(event, _subject(which, event.host))
        case LaneStarted():
            for knob, value in event.settings.items():
                yield ExportedSample(event.at_ns, event.lane, f"knob/{knob}", value, 0)
        case KnobApplied():
            yield ExportedSample(event.at_ns, event.lane, f"knob/{event.knob}", event.value, event.step)


def _subject(what: str, host: str) -> str:
    return f"{host}/{what}" if host else what


def _of_window(window: Window) -> Iterator[ExportedSample]:
    values: dict[str, float | None] = {"loss": window.loss, "longest_ms": window.longest_ns / 1e6}
    if window.span_ns > 0:
        values["examples_per_s"] = window.examples / window.span_ns * 1e9
        values["steps_per_s"] = window.steps / window.span_ns * 1e9
        for name in _SHARES:
            values[name.removesuffix("_ns") + "_pct"] = 100 * getattr(window, name) / window.span_ns
    for name, fraction in (("step_p50_ms", 0.5), ("step_p95_ms", 0.95)):
        quantile_ns = histogram.quantile_ns(window.histogram, fraction)
        values[name] = None if quantile_ns is None else quantile_ns / 1e6
    for name in ("gpu_memory_allocated_bytes", "gpu_memory_peak_bytes"):
        values[name] = getattr(window, name)
    for name, value in values.items():
        if value is not None:
            yield ExportedSample(window.at_ns, window.lane, name, value, window.step, "; ".join(window.marks))


def _of_fields(event: TreeSample | HostSample | GpuSample, subject: str) -> Iterator[ExportedSample]:
    kind: type = type(event)
    for name in _numeric(kind):
        value = getattr(event, name)
        if type(value) in (int, float):
            yield ExportedSample(event.at_ns, subject, name, value)


@functools.cache
def _numeric(kind: type) -> list[str]:
    return [part.name for part in fields(kind) if part.name not in _NOT_MEASURED]

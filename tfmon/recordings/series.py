"""A recording as series of numbers, for programs that know nothing of tfmon."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields

from tfmon.model import histogram
from tfmon.model.events import Event, LaneStarted
from tfmon.model.knobs import KnobValue
from tfmon.model.lane_events import KnobApplied, Window
from tfmon.model.samples import GpuSample, HostSample, TreeSample

_NOT_MEASURED = ("at_ns", "index", "every_s", "pids")
_SHARES = ("input_ns", "call_ns", "sync_ns", "report_ns")


@dataclass(frozen=True, slots=True)
class Sample:
    """One number; the unit is in its name."""

    at_ns: int
    subject: str
    """The lane, `machine`, or a GPU such as `gpu:0`."""
    name: str
    value: KnobValue
    step: int | None = None
    """Steps that the lane had done; None for what is not about its steps."""
    note: str = ""
    """Why a window is no part of steady state; empty if it is."""


def samples_of(event: Event) -> Iterator[Sample]:
    """Return the numbers in an event. What was not measured is left out: there is no number to write.

    Units: `at_ns` is the end of what the number is about; see `model.lane_events`.
    """
    match event:
        case Window():
            yield from _of_window(event)
        case TreeSample():
            yield from _of_fields(event, event.lane)
        case HostSample():
            yield from _of_fields(event, "machine")
        case GpuSample():
            yield from _of_fields(event, f"gpu:{event.index}")
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
        for name in _SHARES:
            values[name.removesuffix("_ns") + "_pct"] = 100 * getattr(window, name) / window.span_ns
    for name, fraction in (("step_p50_ms", 0.5), ("step_p95_ms", 0.95)):
        quantile_ns = histogram.quantile_ns(window.histogram, fraction)
        values[name] = None if quantile_ns is None else quantile_ns / 1e6
    for name in ("gpu_in_use_bytes", "gpu_peak_bytes"):
        values[name] = getattr(window, name)
    for name, value in values.items():
        if value is not None:
            yield Sample(window.at_ns, window.lane, name, value, window.step, "; ".join(window.marks))


def _of_fields(event: TreeSample | HostSample | GpuSample, subject: str) -> Iterator[Sample]:
    for part in fields(event):
        value = getattr(event, part.name)
        if isinstance(value, int | float) and not isinstance(value, bool) and part.name not in _NOT_MEASURED:
            yield Sample(event.at_ns, subject, part.name, value)


def number(value: KnobValue) -> float | None:
    """Return a value as a number that JSON and TensorBoard take; None for words, and for nan and infinities."""
    if isinstance(value, str) or not math.isfinite(value):
        return None
    return float(value)

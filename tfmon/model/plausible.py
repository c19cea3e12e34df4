"""What a lane's event cannot be: figures that are summed up and divided by must not be made up. Pure."""

from __future__ import annotations

import math

from tfmon.model.lane_events import (
    Built,
    Finished,
    FromLane,
    KnobApplied,
    KnobOffered,
    KnobRefused,
    Progressed,
    Window,
)

LARGEST = 10**17
"""Three years in ns: no window lasts so long, and none has so many steps or examples."""
HIGHEST_BIN = 64 * 64
"""Of `model.histogram`: 2^64 ns."""
_PARTS = ("input_ns", "call_ns", "sync_ns", "report_ns")
_AMOUNTS: dict[type, tuple[str, ...]] = {
    Window: (
        *_PARTS, "span_ns", "longest_ns", "traced_ns", "sampled_input_ns", "sampled_copy_ns",
        "sampled_call_ns", "sampled_tail_ns", "steps", "examples", "step", "traced_steps", "sampled",
        "sampled_examples",
    ),
    Progressed: ("epoch", "epochs", "batch", "batches", "epochs_done", "validation_ns", "between_ns"),
    Built: ("parameters", "examples"),
    KnobApplied: ("step", "gap_ns"),
    Finished: ("steps",),
}  # fmt: skip
"""What is counted or summed up, and is never less than nothing."""
_VALUES: dict[type, tuple[str, ...]] = {
    Window: ("settings",),
    Built: ("settings",),
    KnobApplied: ("value",),
    KnobRefused: ("value",),
    KnobOffered: ("value", "default", "choices", "low", "high"),
}
"""What a knob may be set to: neither nan nor infinite, which no result could hold."""


def implausible(event: FromLane) -> str:
    """Return why an event cannot be, in words; empty for one that can."""
    if not 0 <= event.at_ns <= LARGEST:
        return f"{type(event).__name__}.at_ns is {event.at_ns}"
    for name in _AMOUNTS.get(type(event), ()):
        value = getattr(event, name)
        if value is not None and not 0 <= value <= LARGEST:
            return f"{type(event).__name__}.{name} is {value}"
    for name in _VALUES.get(type(event), ()):
        if not _is_finite(getattr(event, name)):
            return f"{type(event).__name__}.{name} has a number that is none"
    return _wrong_in(event) if isinstance(event, Window) else ""


def _is_finite(value: object) -> bool:
    if isinstance(value, dict | tuple):
        return all(map(_is_finite, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or math.isfinite(value)


def _wrong_in(window: Window) -> str:
    if window.span_ns <= 0:
        return f"Window.span_ns is {window.span_ns}"
    parts_ns = sum(getattr(window, name) for name in _PARTS)
    if parts_ns > 2 * window.span_ns:
        return f"the parts of a Window take {parts_ns} ns of its {window.span_ns}"
    if window.computing_share is not None and not 0 <= window.computing_share <= 1:
        return f"Window.computing_share is {window.computing_share}"
    for place, amount in window.histogram.items():
        if not (0 <= place <= HIGHEST_BIN and 0 <= amount <= LARGEST):
            return f"Window.histogram has {amount} in bin {place}"
    return ""

"""What a measured event cannot be: a recording of such figures is damaged or made up, and is refused."""

from __future__ import annotations

from tfmon.model.events import Event, Window
from tfmon.recordings.codec import CodecError

LARGEST = 10**17
"""Three years in ns: no window lasts so long, and none has so many steps or examples."""
HIGHEST_BIN = 64 * 64
"""Of `model.histogram`: 2^64 ns."""
_COUNTS = ("steps", "examples", "step", "traced_steps", "sampled", "sampled_examples")
_PARTS = ("input_ns", "call_ns", "sync_ns", "report_ns")
_TIMES = (
    *_PARTS, "span_ns", "longest_ns", "traced_ns", "sampled_input_ns", "sampled_copy_ns",
    "sampled_call_ns", "sampled_tail_ns",
)  # fmt: skip


def check(event: Event) -> None:
    """Check the figures that are summed up and divided by.

    Errors: CodecError.
    """
    if not isinstance(event, Window):
        return
    if event.span_ns <= 0:
        raise CodecError(f"Window.span_ns is {event.span_ns}")
    for name in (*_COUNTS, *_TIMES):
        value = getattr(event, name)
        if value is not None and not 0 <= value <= LARGEST:
            raise CodecError(f"Window.{name} is {value}")
    parts_ns = sum(getattr(event, name) for name in _PARTS)
    if parts_ns > 2 * event.span_ns:
        raise CodecError(f"the parts of a Window take {parts_ns} ns of its {event.span_ns}")
    if event.computing_share is not None and not 0 <= event.computing_share <= 1:
        raise CodecError(f"Window.computing_share is {event.computing_share}")
    for place, amount in event.histogram.items():
        if not (0 <= place <= HIGHEST_BIN and 0 <= amount <= LARGEST):
            raise CodecError(f"Window.histogram has {amount} in bin {place}")

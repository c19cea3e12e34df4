"""Which events are marked on the time line of a replay, and in which words."""

from __future__ import annotations

from tfmon.model.events import Event, Interrupted, LaneEnded, ModeChanged, Wished
from tfmon.model.knobs import show
from tfmon.model.lane_events import KnobApplied, KnobRefused, LaneFailed
from tfmon.model.tape import Mark

MARKING = {
    kind.__name__ for kind in (Interrupted, KnobApplied, KnobRefused, LaneEnded, LaneFailed, ModeChanged, Wished)
}
"""Names of the events that may be marked."""


def mark_of(event: Event) -> list[Mark]:
    """Return the mark of an event, in a list that is empty for one that needs none."""
    match event:
        case KnobApplied():
            return [Mark(event.at_ns, f"{event.knob} {show(event.value)} ({event.lane})", "knob")]
        case KnobRefused():
            return [Mark(event.at_ns, f"{event.knob} {show(event.value)} refused ({event.lane})", "knob")]
        case ModeChanged():
            return [Mark(event.at_ns, f"mode {event.mode}", "wish")]
        case Wished():
            about = event.scenario or ", ".join(event.lanes)
            return [Mark(event.at_ns, f"{event.wish} {about}".strip(), "wish")]
        case LaneFailed():
            return [Mark(event.at_ns, f"{event.lane} failed", "trouble")]
        case LaneEnded(asked=False):
            how = event.signal or f"exit code {event.exit_code}"
            return [] if event.exit_code == 0 else [Mark(event.at_ns, f"{event.lane} ended: {how}", "trouble")]
        case Interrupted():
            return [Mark(event.at_ns, event.why, "trouble")]
        case _:
            return []

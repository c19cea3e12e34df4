"""The signs of life of a lane, and why a window is not measured: a stall or a suspension. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import get_args

from tfmon.model.events import Event, LaneStalled, LaneStarted, Suspended
from tfmon.model.lane_events import FromLane, PhaseEntered, Window
from tfmon.model.script_events import PathsUsed, StackReported

IN_A_STEP = "suspended in a step"
"""Mark of windows in which the lane was suspended outside of steps or while it waited."""
STALL = "stall"
SUSPENDED = "suspended"
"""Mark of windows that overlap a suspension of tfmon or the machine."""
MOST_SUSPENSIONS = 16
_FROM_LANE = tuple(kind for kind in get_args(FromLane) if kind not in (StackReported, PathsUsed))
"""Events that are signs of life. Stacks are reported on request, even by a lane that hangs, and used files are
seen from outside.
"""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The signs of life of a lane."""

    heard_ns: int = 0
    """Stamp of its last event, on its own clock."""
    longest_window_ns: int = 0
    """Only of windows that show the duration of steps."""
    warm_up_ns: int = 0
    """Duration of the warm-up, with tracing and compiling. 0 before its end."""
    stalled_since_ns: int | None = None
    """Its last sign of life, if a stall is under way, or `None`."""
    suspensions: tuple[tuple[int, int], ...] = ()

    def after(self, event: Event, phase_since_ns: int) -> Heartbeat:
        """Return the signs of life after an event; `phase_since_ns` is the start of the previous phase."""
        match event:
            case LaneStarted():
                return Heartbeat(heard_ns=event.at_ns, suspensions=self.suspensions)
            case LaneStalled():
                return replace(self, stalled_since_ns=event.since_ns)
            case Suspended():
                latest = (event.since_ns, event.at_ns)
                return replace(self, suspensions=(*self.suspensions[1 - MOST_SUSPENSIONS :], latest))
            case Window() if not self.marks(event) and IN_A_STEP not in event.marks:
                longest_ns = max(self.longest_window_ns, event.span_ns)
                return Heartbeat(event.at_ns, longest_ns, self.warm_up_ns, None, self.suspensions)
            case PhaseEntered(phase="warming up"):
                return replace(self, heard_ns=event.at_ns, stalled_since_ns=None, warm_up_ns=0)
            case PhaseEntered(phase="ready"):
                warm_up_ns = max(0, event.at_ns - phase_since_ns)
                return replace(self, heard_ns=event.at_ns, stalled_since_ns=None, warm_up_ns=warm_up_ns)
        if isinstance(event, _FROM_LANE):
            return replace(self, heard_ns=event.at_ns, stalled_since_ns=None)
        return self

    def marks(self, window: Window) -> tuple[str, ...]:
        """Return the reasons to discard a window that arrives now. Empty if it counts."""
        began_ns = window.at_ns - window.span_ns
        suspended = any(since_ns < window.at_ns and began_ns < until_ns for since_ns, until_ns in self.suspensions)
        return (STALL,) * (self.stalled_since_ns is not None) + (SUSPENDED,) * suspended

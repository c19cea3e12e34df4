"""Signs of life of a lane, and the times that it, tfmon or the machine stood still. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import get_args

from tfmon.model.events import Event, LaneStalled, LaneStarted, StoodStill
from tfmon.model.lane_events import FromLane, PhaseEntered, StackTold, Window

STALL = "stall"
"""Mark of the first window after a lane that had said nothing spoke again."""
STOOD_STILL = "stood still"
"""Mark of windows that reach into a time in which tfmon or the machine stood still."""
MOST_GAPS = 16
_FROM_LANE = tuple(kind for kind in get_args(FromLane) if kind is not StackTold)
"""Signs of life: what a lane says by itself. A stack it tells because it was asked, also while it hangs."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A time in which tfmon or the machine stood still."""

    since_ns: int
    until_ns: int


@dataclass(frozen=True, slots=True)
class Pulse:
    """What is known of a lane's being alive."""

    heard_ns: int = 0
    """When it said something last, by its own word."""
    slowest_ns: int = 0
    """The longest window yet; of those that show how long its steps take."""
    warm_up_ns: int = 0
    """How long it warmed up, tracing and compiling included; 0 before that is over."""
    stalled_since_ns: int | None = None
    """Its last sign of life, if it has said nothing for too long; None while all is well."""
    gaps: tuple[Gap, ...] = ()

    def after(self, event: Event, phase_since_ns: int) -> Pulse:
        """Return what is known after an event; `phase_since_ns` is when the lane's phase before it began."""
        match event:
            case LaneStarted():
                return Pulse(heard_ns=event.at_ns, gaps=self.gaps)
            case LaneStalled():
                return replace(self, stalled_since_ns=event.since_ns)
            case StoodStill():
                return replace(self, gaps=(*self.gaps[1 - MOST_GAPS :], Gap(event.since_ns, event.at_ns)))
            case Window():
                slowest_ns = self.slowest_ns if self.marks(event) else max(self.slowest_ns, event.span_ns)
                return replace(self, heard_ns=event.at_ns, slowest_ns=slowest_ns, stalled_since_ns=None)
            case PhaseEntered(phase="warming up"):
                return replace(self, heard_ns=event.at_ns, stalled_since_ns=None, warm_up_ns=0)
            case PhaseEntered(phase="ready"):
                warm_up_ns = max(0, event.at_ns - phase_since_ns)
                return replace(self, heard_ns=event.at_ns, stalled_since_ns=None, warm_up_ns=warm_up_ns)
            case _ if isinstance(event, _FROM_LANE):
                return replace(self, heard_ns=event.at_ns, stalled_since_ns=None)
        return self

    def marks(self, window: Window) -> tuple[str, ...]:
        """Return why a window that comes now is no measurement; empty if it is one."""
        began_ns = window.at_ns - window.span_ns
        still = any(gap.since_ns < window.at_ns and began_ns < gap.until_ns for gap in self.gaps)
        stalled = self.stalled_since_ns is not None
        return (STALL,) * stalled + (STOOD_STILL,) * still

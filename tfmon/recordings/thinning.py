"""Makes old events of a recording fewer: what comes often is kept once for each stretch of time. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tfmon.model.events import Event, LanePrinted, LinkMeasured
from tfmon.model.lane_events import Progressed, Window
from tfmon.model.readings import GpuSample, HostSample, TreeSample
from tfmon.model.window_sums import joined

MOST_LINES = 50
"""Lines of a lane's output that are kept of a stretch, the last ones; a lane's log has 500 in all."""


class Thinner:
    """Takes events in their order, and gives fewer of them.

    The windows of a stretch are added up where they have the same settings, marks and round. Of each kind of
    sample the first in a stretch is kept, of a lane's output the last lines. Everything else is kept as it came.
    """

    def __init__(self, every_s: float, give: Callable[[Event], object]) -> None:
        """Call `give` with an event as soon as nothing is added to it any more."""
        self._every_ns = round(every_s * 1e9)
        self._give = give
        self._open: dict[tuple[type, str], Window | LanePrinted] = {}
        """What may still be added to, by its type and lane."""
        self._kept: dict[tuple[object, ...], int] = {}
        """The stretch from which a sample was given last, by what it is of."""

    def add(self, event: Event) -> None:
        """Take the next event."""
        match event:
            case Window() | LanePrinted():
                key = type(event), event.lane
                before = self._open.get(key)
                added = None if before is None else self._added(before, event)
                if before is not None and added is None:
                    self._give(before)
                self._open[key] = added or event
            case GpuSample() | HostSample() | TreeSample() | LinkMeasured() | Progressed():
                of = type(event), event.lane, getattr(event, "host", ""), getattr(event, "key", "")
                stretch = self._stretch(event)
                if self._kept.get(of) != stretch:
                    self._kept[of] = stretch
                    self._give(event)
            case _:
                self.flush(event.lane)
                self._give(event)

    def flush(self, lane: str = "") -> None:
        """Give what is held back: of a lane, or of all."""
        for key in [key for key in self._open if lane in ("", key[1])]:
            self._give(self._open.pop(key))

    def _stretch(self, event: Event) -> int:
        return event.at_ns // self._every_ns

    def _added(self, before: Window | LanePrinted, after: Window | LanePrinted) -> Window | LanePrinted | None:
        """Return both as one; None where they are of two stretches or must be told apart."""
        if self._stretch(before) != self._stretch(after):
            return None
        if isinstance(before, LanePrinted) and isinstance(after, LanePrinted):
            lines = (*before.lines, *after.lines)
            dropped = sum(len(line.encode()) + 1 for line in lines[:-MOST_LINES])
            dropped += before.dropped_bytes + after.dropped_bytes
            return replace(after, lines=lines[-MOST_LINES:], dropped_bytes=dropped)
        if isinstance(before, Window) and isinstance(after, Window):
            same = (before.settings, before.marks, before.round) == (after.settings, after.marks, after.round)
            return joined(before, after) if same else None
        return None

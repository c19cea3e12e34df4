"""One visit of a sweep: a race of two fresh lanes on one device, the baseline and a combination."""

from __future__ import annotations

import math
import queue
import time
from collections.abc import Callable
from typing import Protocol

from tfmon.analysis.bottleneck import find_bottleneck
from tfmon.analysis.statistics import LogSpeeds, log_speeds
from tfmon.model.events import Event
from tfmon.model.knobs import KnobValue, Settings
from tfmon.model.lane_events import LaneFailed, SliceEnded
from tfmon.model.lane_state import HOST_LOST, LaneState
from tfmon.model.readings import Missing
from tfmon.model.session import Session
from tfmon.model.sweep import Figures, Pair

PATIENCE_S = 600.0
"""How long a lane may take to get ready, or a slice to end."""


class Station(Protocol):
    """A place where combinations are measured: it races one against the baseline.

    Thread: one at a time; `begin` and `end` may block for seconds.
    """

    place: str
    kind: str
    """What places share that measure the same combinations, see `kind_of`."""
    machine: str
    """What places share that are on one machine."""
    session: Session

    def begin(self, settings: Settings) -> tuple[str, str]:
        """Start fresh processes, and return the names of the lanes: the baseline and the combination.

        Raises:
            TfmonError: The place cannot be used.
        """

    def end(self) -> None:
        """End both lanes, and return when their processes are gone."""


class RefusedError(Exception):
    """The combination cannot be measured; the text says why."""


class DiedError(Exception):
    """The combination's process has died; the text says why."""


class BaselineError(Exception):
    """The baseline failed: that says nothing of the combination. The text says why."""


class StoppedError(Exception):
    """Somebody ended the sweep."""


class Visit:
    """What one visit measures."""

    def __init__(
        self,
        station: Station,
        lanes: tuple[str, str],
        settings: Settings,
        inbox: queue.SimpleQueue[Event | None],
        add: Callable[[Pair], bool],
    ) -> None:
        self._station = station
        self._lanes = lanes
        self._settings = settings
        self._inbox = inbox
        self._add = add
        self._ended: dict[str, set[int]] = {name: set() for name in lanes}
        self._counted: set[int] = set()
        self._since_s = 0.0

    def run(self) -> Figures:
        """Add pairs until no more are wanted, and return what else was measured."""
        while True:
            try:
                event = self._inbox.get(timeout=PATIENCE_S)
            except queue.Empty:
                raise DiedError(f"nothing was measured within {PATIENCE_S:.0f} s") from None
            if event is None:
                raise StoppedError
            if event.lane not in self._lanes:
                continue
            if not isinstance(event, SliceEnded):
                if self._over(event):
                    return self._figures()
                continue
            if not self._since_s:
                self._since_s = time.monotonic()
            self._ended[event.lane].add(event.round)
            if not self._take_pairs():
                return self._figures()

    def _take_pairs(self) -> bool:
        """Add the pairs of the rounds that both lanes have ended; return whether more are wanted."""
        base, changed = self._lanes
        for number in sorted((self._ended[base] & self._ended[changed]) - self._counted):
            self._counted.add(number)
            self._check_settings()
            first, second = (self._logs(name) for name in (changed, base))
            if number in first and number in second:
                now_s = time.monotonic()
                log = first[number].log - second[number].log
                leads = first[number].at_ns < second[number].at_ns
                took_s, self._since_s = now_s - self._since_s, now_s
                if math.isfinite(log) and not self._add(Pair(log, leads, 0, took_s)):
                    return False
        return True

    def _check_settings(self) -> None:
        """Raise RefusedError if the lane does not train under the settings: a script may not offer a knob."""
        lane = self._lane(self._lanes[1])
        for knob, value in self._settings.items():
            if not _alike(lane.settings.get(knob), value):
                there = (
                    f"{knob}={lane.settings[knob]} stays" if knob in lane.settings else f"it has no knob {knob}"
                )
                raise RefusedError(lane.refused or there)

    def _over(self, event: Event) -> bool:
        """Return whether a lane's end ends the visit well; its process may end later than what it says last.

        Raises: what that end means for the combination.
        """
        lane = self._lane(event.lane)
        baseline = event.lane == self._lanes[0]
        if isinstance(event, LaneFailed):
            said = event.message
            if baseline:
                raise BaselineError(said)
            raise DiedError(said) if event.kind == HOST_LOST else RefusedError(said)
        if lane.trouble is not None:
            raise BaselineError(lane.trouble.message) if baseline else DiedError(lane.trouble.message)
        if not self._counted:
            said = "it ended before anything was measured"
            raise BaselineError(said) if baseline else DiedError(said)
        return True

    def _figures(self) -> Figures:
        """Return what else the visit told of the combination."""
        snapshot = self._station.session.snapshot()
        base, lane = (snapshot.lane(name) for name in self._lanes)
        memory = lane.gpu_memory_used_bytes if lane.spec.kind == "gpu" else lane.private_bytes
        found = find_bottleneck(snapshot, lane)
        missing = memory.reason if isinstance(memory, Missing) else ""
        return Figures(
            place=self._station.place,
            examples_per_s=lane.steady.examples_per_s,
            baseline_examples_per_s=base.steady.examples_per_s,
            step_ms=lane.steady.step_ms(0.5),
            memory_bytes=None if isinstance(memory, Missing) else float(memory),
            memory_missing=missing,
            bottleneck=found.kind if found else "",
            bottleneck_text=found.text if found else "",
        )

    def _logs(self, name: str) -> LogSpeeds:
        return log_speeds(self._lane(name).slices)

    def _lane(self, name: str) -> LaneState:
        return self._station.session.snapshot().lane(name)


def _alike(one: KnobValue | None, other: KnobValue) -> bool:
    """Return whether a lane trains under a value: an optimizer keeps its rate in 32 bits."""
    if isinstance(one, float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=1e-6)
    return one == other

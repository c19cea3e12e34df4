"""One visit of a sweep: a race of two fresh lanes on one device, the baseline and a combination."""

from __future__ import annotations

import math
import queue
import time
from collections.abc import Callable
from typing import Protocol

from tfmon.analysis.bottleneck import find_bottleneck
from tfmon.analysis.statistics import log_speeds
from tfmon.analysis.sweep import PAIRS_OF_A_VISIT
from tfmon.experiments.driver import StoppedError
from tfmon.model.events import Event, LaneEnded, LaneStalled
from tfmon.model.knobs import KnobValue, Settings
from tfmon.model.lane_events import Finished, LaneFailed, SliceEnded
from tfmon.model.lane_state import HOST_LOST, OUT_OF_MEMORY, LaneState
from tfmon.model.readings import Missing
from tfmon.model.series import Figures, Pair
from tfmon.model.session import Session
from tfmon.model.spec import KINDS

PATIENCE_S = 600.0
"""How long the lanes may take to get ready, and from one pair to the next."""
HANGS_S = 60.0
OF_THE_PLACE = ("device_absent", "no_tensorflow", "protocol")
"""Failures of either lane for which no setting is to blame."""


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
        """Start fresh processes, and return the names of the lanes, the baseline first; raises TfmonError."""

    def end(self) -> None:
        """End both lanes, and return when their processes are gone."""


class RefusedError(Exception):
    """The combination cannot be measured; the text says why."""


class DiedError(Exception):
    """The combination's process has died, hangs, or is lost with its host; the text says why."""


class PlaceError(Exception):
    """The baseline failed, or what both lanes need is not there: that says nothing of the combination."""

    def __init__(self, said: str, kind: str = "") -> None:
        super().__init__(said)
        self.out_of_memory = kind == OUT_OF_MEMORY


class Visit:
    """One visit of a combination. Thread: the worker's; `stop` may be called from any."""

    def __init__(self, station: Station, settings: Settings, add: Callable[[Pair], bool]) -> None:
        """Measure settings at a station; `add` takes each pair, and returns whether more are wanted."""
        self._station = station
        self._settings = settings
        self._add = add
        self._lanes = ("", "")
        self._news: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._first: dict[int, str] = {}
        """The lane that was the first to end its slice, by round."""
        self._pairs = 0
        self._since_s = 0.0
        """When the pair before ended, or the first slice; 0 before that."""

    def stop(self) -> None:
        """End it soon."""
        self._news.put(None)

    def run(self) -> Figures:
        """Start both lanes, add pairs until no more are wanted, end the lanes, and return the other readings."""
        forget = self._station.session.listen(self._hear)
        try:
            self._lanes = self._station.begin(self._settings)
            try:
                while self._measure():
                    pass
            except StoppedError:
                if not self._pairs:
                    raise
            return self._figures()
        finally:
            forget()
            self._station.end()

    def _hear(self, event: Event) -> None:
        """Wake the worker for what it must know: a round that both lanes have ended, and the end of a lane."""
        if isinstance(event, SliceEnded):
            self._since_s = self._since_s or time.monotonic()
            if self._first.setdefault(event.round, event.lane) != event.lane:
                self._news.put(event)
        elif isinstance(event, LaneFailed | LaneEnded | LaneStalled | Finished):
            self._news.put(event)

    def _measure(self) -> bool:
        """Add the next pair; return whether more are wanted."""
        patient_until_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                event = self._news.get(timeout=max(0.0, patient_until_s - time.monotonic()))
            except queue.Empty:
                hung = [name for name in self._lanes if self._lane(name).heartbeat.stalled_since_ns is not None]
                if self._lanes[0] in hung:
                    raise PlaceError("the baseline hangs") from None
                raise DiedError("it hangs" if hung else f"nothing was measured for {PATIENCE_S:.0f} s") from None
            if event is None:
                raise StoppedError
            if event.lane not in self._lanes:
                continue
            if isinstance(event, LaneStalled):
                patient_until_s = min(patient_until_s, time.monotonic() + HANGS_S)
            elif not isinstance(event, SliceEnded):
                if self._over(event):
                    return False
            elif (pair := self._pair(event.round)) is not None:
                self._pairs += 1
                return self._add(pair) and self._pairs < PAIRS_OF_A_VISIT

    def _pair(self, number: int) -> Pair | None:
        """Return the pair of a round that both lanes have ended; None where one had no steady window in it."""
        base, changed = (self._lane(name) for name in self._lanes)
        self._check_settings(changed)
        first, second = (log_speeds(one for one in lane.slices if one.round == number) for lane in (changed, base))
        if number not in first or number not in second:
            return None
        log, now_s = first[number].log - second[number].log, time.monotonic()
        took_s, self._since_s = now_s - self._since_s, now_s
        return Pair(log, first[number].at_ns < second[number].at_ns, 0, took_s)

    def _check_settings(self, lane: LaneState) -> None:
        """Raise RefusedError if the lane does not train under the settings: a script may not offer a knob."""
        for knob, value in self._settings.items():
            if knob in KINDS:
                continue  # the place has that many, or refuses it
            if not _alike(lane.settings.get(knob), value):
                there = (
                    f"{knob}={lane.settings[knob]} stays" if knob in lane.settings else f"it has no knob {knob}"
                )
                raise RefusedError(lane.refused or there)

    def _over(self, event: Event) -> bool:
        """Return whether a lane's end ends the visit well; if not, raise what it means."""
        lane, baseline = self._lane(event.lane), event.lane == self._lanes[0]
        said, kind = (lane.trouble.message, lane.trouble.kind) if lane.trouble is not None else ("", "")
        if not said and self._pairs:
            return True
        said = said or "it ended before anything was measured"
        if kind == HOST_LOST:
            raise DiedError(said)
        if baseline or kind in OF_THE_PLACE:
            raise PlaceError(f"the baseline: {said}" if baseline else said, kind)
        raise RefusedError(said) if isinstance(event, LaneFailed) else DiedError(said)

    def _figures(self) -> Figures:
        """Return the other readings of the combination."""
        snapshot = self._station.session.snapshot()
        base, lane = (snapshot.lane(name) for name in self._lanes)
        memory = lane.gpu_use.used_bytes if lane.spec.kind == "gpu" else lane.memory_bytes
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
            versions=lane.versions,
        )

    def _lane(self, name: str) -> LaneState:
        return self._station.session.snapshot().lane(name)


def _alike(one: KnobValue | None, other: KnobValue) -> bool:
    """Return whether a lane trains under a value: an optimizer keeps its rate in 32 bits."""
    if isinstance(one, float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=1e-6)
    return one == other

"""Measures the combinations of a sweep: one worker a machine, each visit with fresh processes.

A visit is a race of two lanes on one device, the baseline and the combination. The places of one machine take
turns; machines work at the same time.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from tfmon.analysis.bottleneck import find_bottleneck
from tfmon.analysis.statistics import LogSpeeds, log_speeds
from tfmon.analysis.sweep import OPEN, PAIRS_OF_A_VISIT, Found, judge, next_due, rank
from tfmon.errors import TfmonError
from tfmon.model.events import Event, LaneEnded
from tfmon.model.knobs import KnobValue, Settings
from tfmon.model.lane_events import Finished, LaneFailed, SliceEnded
from tfmon.model.lane_state import HOST_LOST, LaneState
from tfmon.model.readings import Missing
from tfmon.model.records import replace
from tfmon.model.session import Session
from tfmon.model.sweep import (
    CombinationDied,
    CombinationRefused,
    Figures,
    Pair,
    PairMeasured,
    SweepEvent,
    SweepState,
    VisitBegan,
    VisitEnded,
    after,
)

PATIENCE_S = 600.0
"""How long a lane may take to get ready, or a slice to end."""
MOST_FAILURES = 3
"""So often in a row the baseline may fail in a place before it is given up."""
LATEST_VISITS = 40
"""Visits whose length the time left is estimated from."""


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


class _RefusedError(Exception):
    """The combination cannot be measured; the text says why."""


class _DiedError(Exception):
    """The combination's process has died; the text says why."""


class _BaselineError(Exception):
    """The baseline failed: that says nothing of the combination. The text says why."""


class _StoppedError(Exception):
    """Somebody ended the sweep."""


class Sweep:
    """One sweep.

    Thread: its own, one a machine; every method may be called from any.
    """

    def __init__(
        self,
        state: SweepState,
        stations: Sequence[Station],
        write: Callable[[SweepEvent], None] = lambda event: None,
    ) -> None:
        """Measure what is open in `state` at the stations; `write` takes everything that happens, in its order."""
        self._news = threading.Condition()
        self._write = write
        self._found = rank(state)
        self._state = state
        self._machines: dict[str, list[Station]] = {}
        for station in stations:
            self._machines.setdefault(station.machine, []).append(station)
        self._failures: dict[Station, int] = {}
        self._inboxes: set[queue.SimpleQueue[Event | None]] = set()
        self._stopped = ""
        self._working = 0
        """Machines that still have something to do."""
        self._threads: list[threading.Thread] = []

    @property
    def found(self) -> Found:
        """What it came to so far."""
        with self._news:
            if self._found.state is not self._state:
                self._found = rank(self._state, self._found)
            return self._found

    def start(self) -> None:
        """Begin to measure."""
        for stations in self._machines.values():
            thread = threading.Thread(target=self._work, args=(stations,), name="tfmon-sweep", daemon=True)
            self._threads.append(thread)
        self._working = len(self._threads)
        for thread in self._threads:
            thread.start()

    def stop(self, reason: str = "stopped") -> None:
        """End it soon; what is measured stays."""
        with self._news:
            self._stopped = self._stopped or reason
            if not self._threads:
                self._state = replace(self._state, over=True, ended=self._stopped)
            for inbox in self._inboxes:
                inbox.put(None)
            self._news.notify_all()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end; return whether it has ended."""
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _why_ended(self) -> str:
        if self._stopped:
            return self._stopped
        if any(row.outcome == OPEN for row in rank(self._state, self._found).rows):
            return "no place is left: " + "; ".join(f"{place}: {why}" for place, why in self._state.lost.items())
        return ""

    # ---------------------------------------------------------------- one machine

    def _work(self, stations: Sequence[Station]) -> None:
        """Visit one combination after the other, in a machine's places in turn; the last one ends the sweep."""
        try:
            self._visit_all(stations)
        except Exception as error:
            self.stop(f"{type(error).__name__}: {error}")  # or the other machines would wait for this one
            raise
        finally:
            with self._news:
                self._working -= 1
                if not self._working:
                    self._state = replace(self._state, over=True, ended=self._why_ended())

    def _visit_all(self, stations: Sequence[Station]) -> None:
        waiting = list(stations)
        while (taken := self._take(waiting)) is not None:
            station, number = taken
            waiting.remove(station)
            began_s = time.monotonic()
            lost = self._visit(station, number)
            if not lost:
                waiting.append(station)
            with self._news:
                known = self._state
                visits_s = (*known.visits_s, time.monotonic() - began_s)[-LATEST_VISITS:]
                lost_places = {**known.lost, station.place: lost} if lost else known.lost
                self._state = replace(known, visits_s=visits_s, lost=lost_places)

    def _take(self, stations: Sequence[Station]) -> tuple[Station, int] | None:
        """Wait for a combination to measure in one of the places; None when there will be none."""
        with self._news:
            while stations and not self._stopped:
                found = self.found
                for station in stations:
                    number = next_due(found.rows, station.kind, self._state.running)
                    if number is not None:
                        self._tell(VisitBegan(number, station.place))
                        return station, number
                if not self._state.running:
                    break
                self._news.wait()  # what is measured elsewhere may need another visit
            return None

    def _visit(self, station: Station, number: int) -> str:
        """Measure a combination for a while; return why the place cannot be used any more, or ""."""
        lost, figures = "", None
        told: SweepEvent | None = None
        try:
            figures = self._race(station, number)
            self._failures.pop(station, None)
        except _RefusedError as refused:
            told = CombinationRefused(number, str(refused))
        except _DiedError as died:
            told = CombinationDied(number, str(died))
        except _BaselineError as failed:
            self._failures[station] = self._failures.get(station, 0) + 1
            lost = f"the baseline: {failed}" if self._failures[station] >= MOST_FAILURES else ""
        except TfmonError as error:
            lost = error.message
        except _StoppedError:
            pass
        finally:
            station.end()
        with self._news:
            if told is not None:
                self._tell(told)
            self._tell(VisitEnded(number, figures))
            self._news.notify_all()
        return lost

    def _tell(self, event: SweepEvent) -> None:
        """Let something happen; the caller holds the lock."""
        self._state = after(self._state, event)
        self._write(event)

    # ---------------------------------------------------------------- one visit

    def _race(self, station: Station, number: int) -> Figures | None:
        """Race a combination until the visit is over, or nothing more is to be measured of it."""
        inbox: queue.SimpleQueue[Event | None] = queue.SimpleQueue()

        def hear(event: Event) -> None:
            if isinstance(event, SliceEnded | LaneFailed | LaneEnded | Finished):
                inbox.put(event)

        with self._news:
            if self._stopped:
                raise _StoppedError
            self._inboxes.add(inbox)
            known = self._state.combinations[number]
        forget = station.session.listen(hear)
        try:
            lanes = station.begin(known.settings)
            return _Measurement(station, lanes, known.settings, inbox, lambda pair: self._add(number, pair)).run()
        finally:
            forget()
            with self._news:
                self._inboxes.discard(inbox)

    def _add(self, number: int, pair: Pair) -> bool:
        """Add a pair to a combination; return whether more are wanted in this visit."""
        with self._news:
            visit = self._state.combinations[number].visits
            self._tell(PairMeasured(number, replace(pair, visit=visit)))
            known, plan = self._state.combinations[number], self._state.plan
            row = judge(known, plan, self._found.choices[known.kind], self._found.floors[known.kind])
            of_this_visit = sum(one.visit == visit for one in known.pairs)
            return row.outcome == OPEN and of_this_visit < PAIRS_OF_A_VISIT


class _Measurement:
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
                raise _DiedError(f"nothing was measured within {PATIENCE_S:.0f} s") from None
            if event is None:
                raise _StoppedError
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
        """Raise _RefusedError if the lane does not train under the settings: a script may not offer a knob."""
        lane = self._lane(self._lanes[1])
        for knob, value in self._settings.items():
            if not _alike(lane.settings.get(knob), value):
                there = (
                    f"{knob}={lane.settings[knob]} stays" if knob in lane.settings else f"it has no knob {knob}"
                )
                raise _RefusedError(lane.refused or there)

    def _over(self, event: Event) -> bool:
        """Return whether a lane's end ends the visit well; its process may end later than what it says last.

        Raises: what that end means for the combination.
        """
        lane = self._lane(event.lane)
        baseline = event.lane == self._lanes[0]
        if isinstance(event, LaneFailed):
            said = event.message
            if baseline:
                raise _BaselineError(said)
            raise _DiedError(said) if event.kind == HOST_LOST else _RefusedError(said)
        if lane.trouble is not None:
            raise _BaselineError(lane.trouble.message) if baseline else _DiedError(lane.trouble.message)
        if not self._counted:
            said = "it ended before anything was measured"
            raise _BaselineError(said) if baseline else _DiedError(said)
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

"""The engine of series: it measures the attempts that a policy chooses.

Stations on one machine take turns; different machines work at the same time.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from tfmon.analysis.bottleneck import find_bottleneck
from tfmon.analysis.statistics import pairs_of
from tfmon.errors import TfmonError
from tfmon.model.event_base import Event
from tfmon.model.events import LaneEnded, LaneStalled
from tfmon.model.knobs import Settings
from tfmon.model.lane_events import OUT_OF_MEMORY, Finished, LaneFailed, SliceEnded
from tfmon.model.lane_state import HOST_LOST, LaneState
from tfmon.model.readings import Missing
from tfmon.model.series import (
    STOPPED,
    Attempt,
    Figures,
    Pair,
    PairMeasured,
    SeriesBegan,
    SeriesEnded,
    SeriesState,
    SeriesStep,
    VisitBegan,
    VisitEnded,
    state_after,
)
from tfmon.model.session import Session
from tfmon.model.spec import KINDS
from tfmon.system.threads import start_thread

MOST_FAILURES = 3
PATIENCE_S = 600.0
HANGS_S = 60.0
OF_THE_PLACE = ("device_absent", "no_tensorflow", "protocol")


class StoppedError(Exception):
    """The series was stopped; the reason is empty if by the user."""


class RefusedError(Exception):
    """An attempt cannot be measured."""


class DiedError(Exception):
    """The process of an attempt died, stalls, or is lost."""


class PlaceError(Exception):
    """The baseline failed, or a common requirement is missing."""

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.out_of_memory = kind == OUT_OF_MEMORY


class Policy(ABC):
    """Chooses the next measurement. Thread: the caller holds the engine's lock."""

    @abstractmethod
    def next(self, state: SeriesState, kind: str) -> Attempt | None:
        """Return an attempt for a kind of station, or `None` for now."""

    @abstractmethod
    def more(self, state: SeriesState, number: int, pairs: int) -> bool:
        """Return whether a visit continues after this number of pairs."""

    def settle(self, attempt: Attempt, ended: VisitEnded, *, stopped: bool) -> VisitEnded:
        """Add the outcome to the end of a visit."""
        return ended

    @abstractmethod
    def settled(self, state: SeriesState) -> bool:
        """Return whether nothing needs more measurements."""


class Station(ABC):
    """Measures attempts at one place. Thread: one at a time, `stop` from any."""

    place = ""
    kind = ""
    """Equal for stations that measure the same attempts, see `kind_of`."""
    machine = ""
    """Equal for stations on one machine."""
    session: Session

    def open(self) -> Sequence[Settings]:
        """Prepare the station; return the settings of a race's lanes."""
        return ()

    def prepare(self, state: SeriesState) -> None:
        """Wait until enough is known to choose an attempt."""

    @abstractmethod
    def measure(self, attempt: Attempt, add: Callable[[Pair, float], bool]) -> Figures | None:
        """Add pairs of an attempt until enough, and return other readings.

        Args:
            add: Takes each pair and its time, and returns whether to continue.

        Raises: RefusedError, DiedError, PlaceError, TfmonError if the station is unusable, StoppedError.
        """

    def stop(self, reason: str = "") -> None:
        """Make the other methods raise StoppedError soon; a reason ends the whole series."""

    def leave(self) -> None:
        """Restore a race's lanes."""


class Series:
    """One series. Thread: its own, one per machine; every method from any."""

    def __init__(
        self,
        state: SeriesState,
        policy: Policy,
        stations: Sequence[Station],
        keep: Callable[[SeriesStep], object],
    ) -> None:
        """`keep` gets all steps in order."""
        self._news = threading.Condition()
        self._keep = keep
        self._policy = policy
        self.state = state
        self._stations = stations
        self._failures: dict[Station, int] = {}
        self._worked: set[Station] = set()
        self.failure = self.stopped = ""
        self._working = 0
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin to measure."""
        machines: dict[str, list[Station]] = {}
        for station in self._stations:
            machines.setdefault(station.machine, []).append(station)
        with self._news:
            if not self.stopped:
                self._working = len(machines)
                for stations in machines.values():
                    work = partial(self._work, stations)
                    self._threads.append(start_thread("tfmon-series", work, self._fail))

    def stop(self, reason: str = STOPPED) -> None:
        """End the series soon; the measurements stay."""
        with self._news:
            self.stopped = self.stopped or reason
            if not self._threads and not self.state.over:
                self._note(SeriesEnded(self.stopped))
            for station in self._stations:
                station.stop()
            self._news.notify_all()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end; return whether it has ended."""
        deadline_s = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _note(self, step: SeriesStep) -> None:
        with self._news:
            self.state = state_after(self.state, step)
            self._keep(step)
            self._news.notify_all()

    def _fail(self, reason: str) -> None:
        """End the series, because other machines would wait for the dead thread."""
        self.failure = reason
        self.stop(reason)
        self._leave()

    def _leave(self) -> None:
        with self._news:
            self._working -= 1
            if self._working:
                return
            ended = self.failure
            if not self._policy.settled(self.state):
                lost = [f"{name}: {why}" for name, why in self.state.lost.items()]
                ended = self.stopped or f"no place is left: {'; '.join(lost)}"
            self._note(SeriesEnded(ended))

    def _work(self, stations: Sequence[Station]) -> None:
        """The last thread ends the series."""
        try:
            for station in stations:
                if under := station.open():
                    self._note(SeriesBegan(tuple(map(dict, under))))
            self._measure(stations)
        except (StoppedError, RefusedError) as error:
            self.stop(str(error) or STOPPED)
        finally:
            for station in stations:
                station.leave()
        self._leave()

    def _measure(self, stations: Sequence[Station]) -> None:
        waiting = list(stations)
        while (taken := self._take(waiting)) is not None:
            station, number = taken
            waiting.remove(station)
            if not self._visit(station, number):
                waiting.append(station)

    def _take(self, stations: Sequence[Station]) -> tuple[Station, int] | None:
        """Wait for an attempt; return `None` at the end."""
        for station in stations:
            station.prepare(self.state)
        with self._news:
            while stations and not self.stopped:
                for station in stations:
                    if (attempt := self._policy.next(self.state, station.kind)) is not None:
                        number = attempt.number
                        new = attempt if number == len(self.state.attempts) else None
                        self._note(VisitBegan(number, station.place, new))
                        return station, number
                if not self.state.running:
                    break
                self._news.wait()  # a measurement on another machine may need another visit
            return None

    def _visit(self, station: Station, number: int) -> str:
        """Return why the station is unusable, or ""."""
        began_s, ended, stopped = time.monotonic(), VisitEnded(number), False
        try:
            ended = VisitEnded(number, station.measure(self.state.attempts[number], self._adding(number)))
            self._worked.add(station)
            self._failures.pop(station, None)
        except RefusedError as refused:
            ended = VisitEnded(number, refused=str(refused))
        except DiedError as died:
            ended = VisitEnded(number, died=str(died))
        except PlaceError as failed:
            if failed.out_of_memory and station in self._worked:
                ended = VisitEnded(number, died=f"{failed}, beside this combination")
            else:
                failures = self._failures[station] = self._failures.get(station, 0) + 1
                ended = VisitEnded(number, lost=str(failed) if failures >= MOST_FAILURES else "")
        except TfmonError as error:
            ended = VisitEnded(number, lost=error.message)
        except StoppedError as error:
            stopped = True
            if reason := str(error):  # not by `stop`
                self.stop(reason)
        with self._news:
            ended = replace(ended, took_s=time.monotonic() - began_s)
            self._note(self._policy.settle(self.state.attempts[number], ended, stopped=stopped))
        return ended.lost

    def _adding(self, number: int) -> Callable[[Pair, float], bool]:
        pairs = 0

        def add(pair: Pair, took_s: float) -> bool:
            nonlocal pairs
            with self._news:
                pairs += 1
                pair = pair if pair.visit else replace(pair, visit=self.state.attempts[number].visits)
                self._note(PairMeasured(number, pair, took_s))
                return self._policy.more(self.state, number, pairs)

        return add


class RaceStation(Station):
    """Races an attempt against a baseline in new processes, and takes a pair from each round."""

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._stop_reason: str | None = None
        self._racing = ("", "")
        """The lanes of the visit, the baseline first."""
        self._first: dict[int, str] = {}
        """Each round's first lane."""
        self._measured = False
        self._since_s = 0.0

    @abstractmethod
    def begin(self, attempt: Attempt) -> tuple[str, str]:
        """Start both lanes, the baseline first; raises TfmonError or RefusedError."""

    @abstractmethod
    def end(self) -> None:
        """End both lanes and wait."""

    def stop(self, reason: str = "") -> None:
        """End the visit soon."""
        self._stop_reason = self._stop_reason or reason
        self._events.put(None)

    def measure(self, attempt: Attempt, add: Callable[[Pair, float], bool]) -> Figures | None:
        """Race until no more pairs are required."""
        self._first, self._measured, self._since_s = {}, False, 0.0
        while not self._events.empty():  # of an earlier visit
            self._events.get()
        if self._stop_reason is not None:
            raise StoppedError(self._stop_reason)
        forget = self.session.listen(self._hear)
        try:
            self._racing = self.begin(attempt)
            try:
                while add(*self._next_pair(attempt)):
                    pass
            except StoppedError:
                if not self._measured:
                    raise
            return self._figures(attempt)
        finally:
            forget()
            self.end()

    def _hear(self, event: Event) -> None:
        """Wake the worker at the end of a round or a lane."""
        if isinstance(event, SliceEnded):
            self._since_s = self._since_s or time.monotonic()
            if self._first.setdefault(event.round, event.lane) != event.lane:
                self._events.put(event)
        elif isinstance(event, LaneFailed | LaneEnded | LaneStalled | Finished):
            self._events.put(event)

    def _next_pair(self, attempt: Attempt) -> tuple[Pair, float]:
        """Wait for the next pair; return also the seconds of its round."""
        patient_until_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                event = self._events.get(timeout=max(0.0, patient_until_s - time.monotonic()))
            except queue.Empty:
                hung = [name for name in self._racing if self._lane(name).heartbeat.stalled_since_ns is not None]
                if self._racing[0] in hung:
                    raise PlaceError("the baseline hangs") from None
                raise DiedError("it hangs" if hung else f"nothing was measured for {PATIENCE_S:.0f} s") from None
            if event is None:
                raise StoppedError(self._stop_reason)
            if event.lane not in self._racing:
                continue
            if isinstance(event, LaneStalled):
                patient_until_s = min(patient_until_s, time.monotonic() + HANGS_S)
            elif not isinstance(event, SliceEnded):
                self._raise_end(event)
            elif (pair := self._pair(event.round, attempt)) is not None:
                now_s = time.monotonic()
                took_s, self._since_s = now_s - self._since_s, now_s
                self._measured = True
                return pair, took_s

    def _pair(self, number: int, attempt: Attempt) -> Pair | None:
        """Return the pair of a round, or `None` without a steady window."""
        base, changed = map(self._lane, self._racing)
        self._check_settings(changed, attempt)
        of_round = ([part for part in lane.slices if part.round == number] for lane in (changed, base))
        return next((replace(pair, visit=0) for pair in pairs_of(*of_round)), None)

    def _check_settings(self, lane: LaneState, attempt: Attempt) -> None:
        """Raise RefusedError, for example if a script lacks a knob."""
        for knob, value in attempt.settings.items():
            now = lane.settings.get(knob)
            alike = now == value
            if isinstance(now, float) and isinstance(value, int | float):  # an optimizer keeps its rate in 32 bits
                alike = math.isclose(now, value, rel_tol=1e-6)
            if not alike and knob not in KINDS:  # the place has enough of these, or refuses
                there = f"it has no knob {knob}" if now is None else f"{knob}={now} stays"
                raise RefusedError(lane.changes.refused or there)

    def _raise_end(self, event: Event) -> None:
        """Raise the error of an ended lane, or StoppedError if something was measured."""
        lane, baseline = self._lane(event.lane), event.lane == self._racing[0]
        message, kind = (lane.trouble.message, lane.trouble.kind) if lane.trouble is not None else ("", "")
        if not message and self._measured:
            raise StoppedError
        message = message or "it ended before anything was measured"
        if kind == HOST_LOST:
            raise DiedError(message)
        if baseline or kind in OF_THE_PLACE:
            raise PlaceError(f"the baseline: {message}" if baseline else message, kind)
        raise RefusedError(message) if isinstance(event, LaneFailed) else DiedError(message)

    def _figures(self, attempt: Attempt) -> Figures:
        """Return the other readings."""
        snapshot = self.session.snapshot()
        base, lane = (snapshot.lane(name) for name in self._racing)
        memory = lane.gpu_use.used_bytes if lane.spec.kind == "gpu" else lane.memory_bytes
        result = find_bottleneck(snapshot, lane)
        return Figures(
            place=self.place,
            examples_per_s=lane.steady.examples_per_s,
            baseline_examples_per_s=base.steady.examples_per_s,
            step_ms=lane.steady.step_ms(0.5),
            memory_bytes=None if isinstance(memory, Missing) else float(memory),
            memory_missing=memory.reason if isinstance(memory, Missing) else "",
            bottleneck=result.kind if result else "",
            bottleneck_text=result.text if result else "",
            versions=lane.process.versions,
            baseline={knob: base.settings[knob] for knob in attempt.settings if knob in base.settings},
        )

    def _lane(self, name: str) -> LaneState:
        return self.session.snapshot().lane(name)

"""The engine of series: it measures the attempts that a policy chooses.

The places of one machine take turns. Different machines work at the same time.
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
from tfmon.analysis.statistics import log_speeds
from tfmon.errors import TfmonError
from tfmon.model.events import Event, LaneEnded, LaneStalled
from tfmon.model.knobs import Settings
from tfmon.model.lane_events import Finished, LaneFailed, SliceEnded
from tfmon.model.lane_state import HOST_LOST, OUT_OF_MEMORY, LaneState
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
    after,
)
from tfmon.model.session import Session, Snapshot
from tfmon.model.spec import KINDS
from tfmon.system.threads import start_thread

MOST_FAILURES = 3
PATIENCE_S = 600.0
HANGS_S = 60.0
OF_THE_PLACE = ("device_absent", "no_tensorflow", "protocol")


class StoppedError(Exception):
    """The series was stopped; the reason is empty for the user."""


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
    """Chooses the next measurement. Thread: the caller holds the engine's lock, except in `ready`."""

    def ready(self, state: SeriesState, snapshot: Snapshot) -> bool:
        """Return whether enough is known to choose."""
        return True

    @abstractmethod
    def next(self, state: SeriesState, kind: str) -> Attempt | None:
        """Return an attempt for a kind of place, or `None` for now."""

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
    """A place where attempts are measured. Thread: one at a time, `stop` from any."""

    place = ""
    kind = ""
    """The same for places that measure the same attempts, see `kind_of`."""
    machine = ""
    """The same for places on one machine."""
    session: Session

    def open(self) -> Sequence[Settings]:
        """Prepare the place; return the settings of a race's lanes."""
        return ()

    def prepare(self, ready: Callable[[Snapshot], bool]) -> None:
        """Wait until a race's lanes are `ready`."""

    @abstractmethod
    def visit(self, attempt: Attempt, add: Callable[[Pair, float], bool]) -> Visit:
        """Return the visit; `add` takes each pair and its time, and returns whether to continue."""

    def stop(self) -> None:
        """Stop waiting soon."""

    def leave(self) -> None:
        """Restore a race's lanes."""


class Visit(ABC):
    """One visit of an attempt. Thread: the worker's; `stop` from any."""

    @abstractmethod
    def run(self) -> Figures | None:
        """Add pairs until no more are required, and return other readings.

        Raises: RefusedError, DiedError, PlaceError, TfmonError if the place is unusable, StoppedError.
        """

    def stop(self) -> None:
        """End it soon."""


class Series:
    """One series. Thread: its own, one a machine; every method from any."""

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
        self._visits: set[Visit] = set()
        self.failure = ""
        self.stopped = ""
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
        """End it soon; measurements stay."""
        with self._news:
            self.stopped = self.stopped or reason
            if not self._threads and not self.state.over:
                self._note(SeriesEnded(self.stopped))
            for station in self._stations:
                station.stop()
            for visit in self._visits:
                visit.stop()
            self._news.notify_all()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end; return whether it has ended."""
        deadline_s = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _note(self, step: SeriesStep) -> None:
        with self._news:
            self.state = after(self.state, step)
            self._keep(step)
            self._news.notify_all()

    def _fail(self, reason: str) -> None:
        """End the series: the other machines would wait for a dead thread."""
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
                lost = [f"{place}: {why}" for place, why in self.state.lost.items()]
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
        """Visit attempts in these places in turn, until nothing needs it."""
        waiting = list(stations)
        while (taken := self._take(waiting)) is not None:
            station, number, visit = taken
            waiting.remove(station)
            if not self._visit(station, number, visit):
                waiting.append(station)

    def _take(self, stations: Sequence[Station]) -> tuple[Station, int, Visit] | None:
        """Wait for an attempt; `None` at the end."""
        for station in stations:
            station.prepare(lambda snapshot: self._policy.ready(self.state, snapshot))
        with self._news:
            while stations and not self.stopped:
                for station in stations:
                    if (attempt := self._policy.next(self.state, station.kind)) is not None:
                        number = attempt.number
                        visit = station.visit(attempt, self._adding(number))
                        self._visits.add(visit)
                        new = attempt if number == len(self.state.attempts) else None
                        self._note(VisitBegan(number, station.place, new))
                        return station, number, visit
                if not self.state.running:
                    break
                self._news.wait()  # a measurement on another machine may need another visit
            return None

    def _visit(self, station: Station, number: int, visit: Visit) -> str:
        """Return why the place is unusable, or ""."""
        began_s, ended, stopped = time.monotonic(), VisitEnded(number), False
        try:
            ended = VisitEnded(number, visit.run())
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
            self._visits.discard(visit)
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
    """Races an attempt against a baseline, in new processes for each visit."""

    @abstractmethod
    def begin(self, attempt: Attempt) -> tuple[str, str]:
        """Start both lanes, the baseline first; raises TfmonError or RefusedError."""

    @abstractmethod
    def end(self) -> None:
        """End both lanes and wait."""

    def visit(self, attempt: Attempt, add: Callable[[Pair, float], bool]) -> Visit:
        """Return the race of an attempt."""
        return RaceVisit(self, attempt, add)


class RaceVisit(Visit):
    """Races two lanes, and takes a pair from each round."""

    def __init__(self, station: RaceStation, attempt: Attempt, add: Callable[[Pair, float], bool]) -> None:
        self._station = station
        self._attempt = attempt
        self._add = add
        self._lanes = ("", "")
        self._news: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._first: dict[int, str] = {}
        self._reason = ""
        self._measured = False
        self._since_s = 0.0

    def stop(self, reason: str = "") -> None:
        """End it soon; a reason ends the whole series."""
        self._reason = self._reason or reason
        self._news.put(None)

    def run(self) -> Figures | None:
        """Race until no more pairs are required."""
        forget = self._station.session.listen(self.hear)
        try:
            self._lanes = self._station.begin(self._attempt)
            try:
                while self._measure():
                    pass
            except StoppedError:
                if not self._measured:
                    raise
            return self.figures()
        finally:
            forget()
            self._station.end()

    @property
    def patience_s(self) -> float:
        """Longest time without a pair."""
        return PATIENCE_S

    def time_out(self) -> None:
        """Raise the error for no pair."""
        hung = [name for name in self._lanes if self.lane(name).heartbeat.stalled_since_ns is not None]
        if self._lanes[0] in hung:
            raise PlaceError("the baseline hangs")
        raise DiedError("it hangs" if hung else f"nothing was measured for {PATIENCE_S:.0f} s")

    def hear(self, event: Event) -> None:
        """Wake the worker for a round of both lanes, and for the end of a lane."""
        if isinstance(event, SliceEnded):
            self._since_s = self._since_s or time.monotonic()
            if self._first.setdefault(event.round, event.lane) != event.lane:
                self._news.put(event)
        elif isinstance(event, LaneFailed | LaneEnded | LaneStalled | Finished):
            self._news.put(event)

    def _measure(self) -> bool:
        """Add the next pair; return whether more are required."""
        patient_until_s = time.monotonic() + self.patience_s
        while True:
            try:
                event = self._news.get(timeout=max(0.0, patient_until_s - time.monotonic()))
            except queue.Empty:
                self.time_out()
                continue
            if event is None:
                raise StoppedError(self._reason)
            if event.lane not in self._lanes:
                continue
            if isinstance(event, LaneStalled):
                patient_until_s = min(patient_until_s, time.monotonic() + HANGS_S)
            elif not isinstance(event, SliceEnded):
                if self.over(event):
                    return False
            elif (pair := self.pair(event.round)) is not None:
                now_s = time.monotonic()
                took_s, self._since_s = now_s - self._since_s, now_s
                self._measured = True
                return self._add(pair, took_s)

    def pair(self, number: int) -> Pair | None:
        """Return the pair of a round, or `None` without a steady window."""
        snapshot = self._station.session.snapshot()
        base, changed = (snapshot.lane(name) for name in self._lanes)
        self._check_settings(changed)
        first, second = (
            log_speeds(part for part in lane.slices if part.round == number) for lane in (changed, base)
        )
        if number not in first or number not in second:
            return None
        leads = first[number].at_ns < second[number].at_ns
        return Pair(first[number].log - second[number].log, leads, 0, second[number].log)

    def _check_settings(self, lane: LaneState) -> None:
        """A script may not offer a knob."""
        for knob, value in self._attempt.settings.items():
            now = lane.settings.get(knob)
            alike = now == value
            if isinstance(now, float) and isinstance(value, int | float):  # an optimizer keeps its rate in 32 bits
                alike = math.isclose(now, value, rel_tol=1e-6)
            if not alike and knob not in KINDS:  # the place has enough of these, or refuses
                there = f"it has no knob {knob}" if now is None else f"{knob}={now} stays"
                raise RefusedError(lane.changes.refused or there)

    def over(self, event: Event) -> bool:
        """Return whether the end of a lane ends the visit well, or raise the error."""
        lane, baseline = self.lane(event.lane), event.lane == self._lanes[0]
        message, kind = (lane.trouble.message, lane.trouble.kind) if lane.trouble is not None else ("", "")
        if not message and self._measured:
            return True
        message = message or "it ended before anything was measured"
        if kind == HOST_LOST:
            raise DiedError(message)
        if baseline or kind in OF_THE_PLACE:
            raise PlaceError(f"the baseline: {message}" if baseline else message, kind)
        raise RefusedError(message) if isinstance(event, LaneFailed) else DiedError(message)

    def figures(self) -> Figures | None:
        """Return the other readings."""
        snapshot = self._station.session.snapshot()
        base, lane = (snapshot.lane(name) for name in self._lanes)
        memory = lane.gpu_use.used_bytes if lane.spec.kind == "gpu" else lane.memory_bytes
        result = find_bottleneck(snapshot, lane)
        return Figures(
            place=self._station.place,
            examples_per_s=lane.steady.examples_per_s,
            baseline_examples_per_s=base.steady.examples_per_s,
            step_ms=lane.steady.step_ms(0.5),
            memory_bytes=None if isinstance(memory, Missing) else float(memory),
            memory_missing=memory.reason if isinstance(memory, Missing) else "",
            bottleneck=result.kind if result else "",
            bottleneck_text=result.text if result else "",
            versions=lane.process.versions,
            baseline={knob: base.settings[knob] for knob in self._attempt.settings if knob in base.settings},
        )

    def lane(self, name: str) -> LaneState:
        """Return a lane's state."""
        return self._station.session.snapshot().lane(name)

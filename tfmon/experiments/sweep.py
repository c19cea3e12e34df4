"""Measures the combinations of a sweep: a machine's places in turn, machines at once, new lanes for each visit."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from tfmon.analysis.bottleneck import find_bottleneck
from tfmon.analysis.statistics import log_speeds
from tfmon.analysis.sweep import OPEN, PAIRS_OF_A_VISIT, Ranking, judge, next_due, rank
from tfmon.errors import TfmonError
from tfmon.experiments.driver import StoppedError
from tfmon.model.events import Event, LaneEnded, LaneStalled
from tfmon.model.knobs import Settings
from tfmon.model.lane_events import Finished, LaneFailed, SliceEnded
from tfmon.model.lane_state import HOST_LOST, OUT_OF_MEMORY, LaneState
from tfmon.model.readings import Missing
from tfmon.model.series import Figures, Pair, PairMeasured, SweepEvent, SweepState, VisitBegan, VisitEnded, after
from tfmon.model.session import Session
from tfmon.model.spec import KINDS
from tfmon.model.threads import start_thread

MOST_FAILURES = 3
LATEST_VISITS = 40
PATIENCE_S = 600.0
HANGS_S = 60.0
OF_THE_PLACE = ("device_absent", "no_tensorflow", "protocol")


class Sweep:
    """One sweep. Thread: its own, one a machine; every method can be called from any."""

    def __init__(self, state: SweepState, stations: Sequence[Station], keep: Callable[[SweepEvent], None]) -> None:
        """Measure the open combinations of `state` at the stations; `keep` gets all events in order."""
        self._news = threading.Condition()
        self._keep = keep
        self._found = rank(state)
        self.state = state
        self._machines: dict[str, list[Station]] = {}
        for station in stations:
            self._machines.setdefault(station.machine, []).append(station)
        self._failures: dict[Station, int] = {}
        """Consecutive failures that both lanes had in common."""
        self._worked: set[Station] = set()
        self._visits: set[Visit] = set()
        self._final: SweepState | None = None
        """The final state, recomputed from all figures."""
        self.failure = ""
        self._stopped = ""
        self._working = 0
        self._threads: list[threading.Thread] = []

    @property
    def ranking(self) -> Ranking:
        """The result so far."""
        with self._news:
            if self._found.state is not self.state:
                self._found = rank(self.state, self._found)
            return self._found

    def start(self) -> None:
        """Begin to measure."""
        with self._news:
            if self._stopped:
                return
            for stations in self._machines.values():
                self._threads.append(start_thread("tfmon-sweep", partial(self._visit_all, stations), self._fail))
            self._working = len(self._threads)

    def stop(self, reason: str = "stopped") -> None:
        """End it soon; measurements stay."""
        with self._news:
            self._stopped = self._stopped or reason
            if not self._threads:
                self.state = replace(self.state, over=True, ended=self._stopped)
            for visit in self._visits:
                visit.stop()
            self._news.notify_all()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end; return whether it has ended."""
        deadline_s = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _fail(self, reason: str) -> None:
        """End the sweep: a thread has died, and the other machines would wait for this one."""
        self.failure = reason
        self.stop(reason)
        self._leave()

    def _leave(self) -> None:
        with self._news:
            self._working -= 1
            if self._working:
                return
            ended = self.failure
            if not rank(self.state).over:
                lost = [f"{place}: {why}" for place, why in self.state.lost.items()]
                ended = self._stopped or f"no place is left: {'; '.join(lost)}"
            self.state = replace(self.state, over=True, ended=ended)
            self._found = rank(self.state)  # as it will be when the file is read again

    def _visit_all(self, stations: Sequence[Station]) -> None:
        """Visit one combination after the other, in a machine's places in turn; the last thread ends the sweep."""
        waiting = list(stations)
        while (taken := self._take(waiting)) is not None:
            station, number, visit = taken
            waiting.remove(station)
            began_s = time.monotonic()
            lost = self._visit(station, number, visit)
            if not lost:
                waiting.append(station)
            with self._news:
                visits_s = (*self.state.visits_s, time.monotonic() - began_s)[-LATEST_VISITS:]
                places = {**self.state.lost, station.place: lost} if lost else self.state.lost
                self.state = replace(self.state, visits_s=visits_s, lost=places)
        self._leave()

    def _take(self, stations: Sequence[Station]) -> tuple[Station, int, Visit] | None:
        """Wait for a combination to measure in one of the places; `None` at the end."""
        with self._news:
            while stations and not self._stopped:
                rows = self.ranking.rows
                for station in stations:
                    if (number := next_due(rows, station.kind, self.state.running)) is not None:
                        self._tell(VisitBegan(number, station.place))
                        settings = self.state.combinations[number].settings
                        visit = Visit(station, settings, partial(self._add, number))
                        self._visits.add(visit)
                        return station, number, visit
                if self.state.running:
                    self._news.wait()  # what is measured elsewhere may need another visit
                elif self._final is self.state:
                    break
                else:  # by all that is known now, one may need another visit after all
                    self._found, self._final = rank(self.state), self.state
            return None

    def _visit(self, station: Station, number: int, visit: Visit) -> str:
        """Measure a combination for a while; return why the place is unusable, or ""."""
        lost, ended = "", VisitEnded(number)
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
                lost = str(failed) if failures >= MOST_FAILURES else ""
        except TfmonError as error:
            lost = error.message
        except StoppedError:
            pass
        with self._news:
            self._visits.discard(visit)
            self._tell(ended)
            self._news.notify_all()
        return lost

    def _tell(self, event: SweepEvent) -> None:
        """Accept an event; the caller has the lock."""
        self.state = after(self.state, event)
        self._keep(event)

    def _add(self, number: int, pair: Pair) -> bool:
        """Add a pair to a combination; return whether more are required."""
        with self._news:
            self._tell(PairMeasured(number, replace(pair, visit=self.state.combinations[number].visits)))
            known, plan = self.state.combinations[number], self.state.plan
            row = judge(known, plan, self._found.choices[known.kind], self._found.floors[known.kind])
            return row.outcome == OPEN


class Station(Protocol):
    """A place where combinations race the baseline. Thread: one at a time; `begin` and `end` can block."""

    place: str
    kind: str
    """The same for places that measure the same combinations, see `kind_of`."""
    machine: str
    """The same for places on one machine."""
    session: Session

    def begin(self, settings: Settings) -> tuple[str, str]:
        """Start fresh processes, and return the names of the lanes, the baseline first; raises TfmonError."""

    def end(self) -> None:
        """End both lanes, and return when their processes have ended."""


class RefusedError(Exception):
    """The combination cannot be measured; the message contains the reason."""


class DiedError(Exception):
    """The combination's process died, stalls, or is lost with its host; the message contains the reason."""


class PlaceError(Exception):
    """The baseline failed, or a common requirement is missing, independently of the combination."""

    def __init__(self, said: str, kind: str = "") -> None:
        super().__init__(said)
        self.out_of_memory = kind == OUT_OF_MEMORY


class Visit:
    """One visit of a combination. Thread: the worker's; `stop` from any."""

    def __init__(self, station: Station, settings: Settings, add: Callable[[Pair], bool]) -> None:
        """Measure settings at a station; `add` takes each pair, and returns whether more are required."""
        self._station = station
        self._settings = settings
        self._add = add
        self._lanes = ("", "")
        self._news: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._first: dict[int, str] = {}
        self._pairs = 0
        self._since_s = 0.0
        """End of the previous pair, or of the first slice. 0 before."""

    def stop(self) -> None:
        """End it soon."""
        self._news.put(None)

    def run(self) -> Figures:
        """Start both lanes, add pairs until no more are required, end the lanes, and return the other readings."""
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
        """Wake the worker for a round that both lanes have ended, and for the end of a lane."""
        if isinstance(event, SliceEnded):
            self._since_s = self._since_s or time.monotonic()
            if self._first.setdefault(event.round, event.lane) != event.lane:
                self._news.put(event)
        elif isinstance(event, LaneFailed | LaneEnded | LaneStalled | Finished):
            self._news.put(event)

    def _measure(self) -> bool:
        """Add the next pair; return whether more are required."""
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
        """Return the pair of a round that both lanes have ended. `None` if one had no steady window in it."""
        snapshot = self._station.session.snapshot()
        base, changed = (snapshot.lane(name) for name in self._lanes)
        self._check_settings(changed)
        first, second = (log_speeds(one for one in lane.slices if one.round == number) for lane in (changed, base))
        if number not in first or number not in second:
            return None
        log, now_s = first[number].log - second[number].log, time.monotonic()
        took_s, self._since_s = now_s - self._since_s, now_s
        return Pair(log, first[number].at_ns < second[number].at_ns, 0, took_s)

    def _check_settings(self, lane: LaneState) -> None:
        """Raise RefusedError if the lane trains under other settings: a script may not offer a knob."""
        for knob, value in self._settings.items():
            now = lane.settings.get(knob)
            alike = now == value
            if isinstance(now, float) and isinstance(value, int | float):  # an optimizer keeps its rate in 32 bits
                alike = math.isclose(now, value, rel_tol=1e-6)
            if not alike and knob not in KINDS:  # the place has enough of these, or refuses it
                there = f"it has no knob {knob}" if now is None else f"{knob}={now} stays"
                raise RefusedError(lane.changes.refused or there)

    def _over(self, event: Event) -> bool:
        """Return whether a lane's end ends the visit well; otherwise raise the error."""
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
            baseline={knob: base.settings[knob] for knob in self._settings if knob in base.settings},
        )

    def _lane(self, name: str) -> LaneState:
        return self._station.session.snapshot().lane(name)

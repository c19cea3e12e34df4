"""Measures the combinations of a sweep: one worker a machine, each visit with fresh processes.

The places of one machine take turns; machines work at the same time.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Sequence

from tfmon.analysis.sweep import OPEN, Found, judge, next_due, rank
from tfmon.errors import TfmonError
from tfmon.experiments.driver import StoppedError
from tfmon.experiments.sweep_visit import (
    DiedError,
    PlaceError,
    RefusedError,
    Station,
    Visit,
)
from tfmon.model.records import replace
from tfmon.model.series import (
    Pair,
    PairMeasured,
    SweepEvent,
    SweepState,
    VisitBegan,
    VisitEnded,
    after,
)
from tfmon.model.threads import start_thread

MOST_FAILURES = 3
"""So often in a row the baseline may fail in a place before the place is given up."""
LATEST_VISITS = 40
"""Visits whose length the time left is estimated from."""


class Sweep:
    """One sweep. Thread: its own, one a machine; every method may be called from any."""

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
        """How often in a row what both lanes need was not there."""
        self._worked: set[Station] = set()
        """Where both lanes have fitted into the memory."""
        self._visits: set[Visit] = set()
        self._final: SweepState | None = None
        """The state that all figures were made of again, before it counts as the end."""
        self.failure = ""
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
        with self._news:
            if self._stopped:
                return
            for stations in self._machines.values():
                work = functools.partial(self._work, stations)
                self._threads.append(start_thread("tfmon-sweep", work, self._fail))
            self._working = len(self._threads)

    def stop(self, reason: str = "stopped") -> None:
        """End it soon; what is measured stays."""
        with self._news:
            self._stopped = self._stopped or reason
            if not self._threads:
                self._state = replace(self._state, over=True, ended=self._stopped)
            for visit in self._visits:
                visit.stop()
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
        self._visit_all(stations)
        self._leave()

    def _fail(self, reason: str) -> None:
        """End the sweep: a thread has died, and the other machines would wait for this one."""
        self.failure = reason
        self.stop(reason)
        self._leave()

    def _leave(self) -> None:
        with self._news:
            self._working -= 1
            if not self._working:
                self._state = replace(self._state, over=True, ended=self._why_ended())
                self._found = rank(self._state)  # as it will be when the file is read again

    def _visit_all(self, stations: Sequence[Station]) -> None:
        waiting = list(stations)
        while (taken := self._take(waiting)) is not None:
            station, number, visit = taken
            waiting.remove(station)
            began_s = time.monotonic()
            lost = self._visit(station, number, visit)
            if not lost:
                waiting.append(station)
            with self._news:
                known = self._state
                visits_s = (*known.visits_s, time.monotonic() - began_s)[-LATEST_VISITS:]
                lost_places = {**known.lost, station.place: lost} if lost else known.lost
                self._state = replace(known, visits_s=visits_s, lost=lost_places)

    def _take(self, stations: Sequence[Station]) -> tuple[Station, int, Visit] | None:
        """Wait for a combination to measure in one of the places; None when there will be none."""
        with self._news:
            while stations and not self._stopped:
                rows = self.found.rows
                for station in stations:
                    number = next_due(rows, station.kind, self._state.running)
                    if number is not None:
                        self._tell(VisitBegan(number, station.place))
                        settings = self._state.combinations[number].settings
                        visit = Visit(station, settings, functools.partial(self._add, number))
                        self._visits.add(visit)
                        return station, number, visit
                if self._state.running:
                    self._news.wait()  # what is measured elsewhere may need another visit
                elif self._final is self._state:
                    break
                else:  # by all that is known now, one may need another visit after all
                    self._found, self._final = rank(self._state), self._state
            return None

    def _visit(self, station: Station, number: int, visit: Visit) -> str:
        """Measure a combination for a while; return why the place cannot be used any more, or ""."""
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
        """Let something happen; the caller holds the lock."""
        self._state = after(self._state, event)
        self._write(event)

    def _add(self, number: int, pair: Pair) -> bool:
        """Add a pair to a combination; return whether more are wanted."""
        with self._news:
            visit = self._state.combinations[number].visits
            self._tell(PairMeasured(number, replace(pair, visit=visit)))
            known, plan = self._state.combinations[number], self._state.plan
            row = judge(known, plan, self._found.choices[known.kind], self._found.floors[known.kind])
            return row.outcome == OPEN

"""Who trains when: the start signal, slices and rounds, pauses. Knows lanes by name; others carry it out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from tfmon.lanes.children import Children
from tfmon.lanes.rounds import RoundOrder, Slice
from tfmon.lanes.spare import LEAST_ROUNDS
from tfmon.model.race import TURNS, interleaved
from tfmon.model.requests import Pause, Request, Run, RunSlice

FIRST_ROUNDS = 8
"""The spare worker does not load in the first rounds: they bring the first verdict."""
SHARE = 0.05
"""A slice lasts at least this share of the longest one beside it: the lane of short steps then has a smaller error
than the other, at little cost."""
COMPUTING_S, LONGEST_PART_S = 2.0, 16.0
"""A slice that does not end is trained in parts: the first of this length if the lane computes, each twice as long
as the one before, up to the second figure."""
HUNG_EVERY = 32
"""Interval in rounds between slices of an unresponsive lane."""


class RaceActions(Protocol):
    """The actions of a race on decisions of the scheduler."""

    def started(self) -> None:
        """Record that the lanes got the start signal."""

    def granted(self, lane: str, beside: Sequence[str] = ()) -> None:
        """Record whose slice begins, "" for nobody's, and which slices of other machines run on."""

    def paused(self, lane: str) -> None:
        """Record that a lane is paused which does not train at the moment."""

    def renew(self, lanes: Sequence[str]) -> bool:
        """Replace the processes of lanes by fresh ones, if that is due; return whether they are being replaced."""

    def computes(self, lane: str) -> bool:
        """Return whether a step of a lane takes the same running time if it is suspended in the middle."""

    def patience_s(self, lane: str) -> float:
        """Return after how many seconds a lane that has not ended its slice does something else than its steps."""


class Scheduler:
    """Decides which lanes train.

    All lanes get the start signal together, when the last of them is ready. When interleaved, a lane that does not
    train is suspended: otherwise its input pipeline would fill its buffers, which takes the CPU from the measured
    lane, and gives it a head start in its own next slice. While a lane gets ready, no slice is granted.

    Lanes of one machine take turns, and lanes of different machines train at the same time. Each round has one
    slice of every lane.

    A slice ends with a step. During a long step that only computes, the lane is suspended in the middle, and the
    others get more slices in the same round.

    An unresponsive lane is suspended, too, because it would take the CPU from the measured lane when it wakes up.
    It is out of the race, but is sometimes continued for a slice. If it wakes up, it ends the slice in which it
    hung, and takes part again. A lane that hangs before it is ready is not suspended, and the others begin without
    it.

    Thread: one at a time; the caller holds a lock.
    """

    def __init__(
        self, processes: Children, race: RaceActions, clock_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._processes = processes
        self._race = race
        self._clock_ns = clock_ns
        self.begin((), TURNS, 0.5)

    def begin(
        self, lanes: Sequence[str], mode: str, slice_s: float, machines: Mapping[str, str] | None = None
    ) -> None:
        """Take over the lanes of a new race; `machines` is what those of one machine share; None where all do."""
        self._lanes = list(lanes)
        self._machines = dict(machines or {})
        self._mode = mode
        self._slice_s = slice_s
        self._order = RoundOrder(self._machines)
        self._started = False
        self._ready: set[str] = set()
        self._ended: set[str] = set()
        self._paused: set[str] = set()
        self._training: set[str] = set()
        self._in_slice: set[str] = set()
        """The lanes with a recorded running slice."""
        self._unresponsive: set[str] = set()
        self._slices: dict[str, Slice] = {}
        self._renewed_in = 0
        self._spare_loads = False
        self._spare_loaded_in: int | None = None
        self._exclusive = ""
        self._exclusive_slice_s: float | None = None

    @property
    def busy(self) -> bool:
        """True while a lane trains."""
        return bool(self._training)

    def ready(self, lane: str) -> None:
        """Note that a lane is warm and waits; those of short steps are ready first, and train first."""
        if not self._started:
            self._lanes.remove(lane)
            self._lanes.append(lane)
        self._ready.add(lane)
        self._ended.discard(lane)
        self._stopped(lane)

    def idle(self, lane: str) -> None:
        """Note that a lane ended its slice, or paused."""
        if lane in self._paused:
            self._race.paused(lane)
        self._stopped(lane)

    def ended(self, lane: str) -> None:
        """Record that a lane has stopped training."""
        self._ended.add(lane)
        self._training.discard(lane)
        self._unresponsive.discard(lane)
        self._act()

    def restarting(self, lane: str) -> None:
        """Note that a lane's process is replaced by a new one."""
        self._slices.pop(lane, None)
        for group in (self._ready, self._ended, self._training, self._unresponsive):
            group.discard(lane)
        self._act()

    def skip(self, lane: str) -> None:
        """Go on without an unresponsive lane, until it says something again."""
        self._unresponsive.add(lane)
        if self._interleaved and lane in self._training:
            self._suspend(lane)
        self._act()

    def check(self) -> None:
        """Suspend lanes in the middle of long slices, where others can train. Called about once a second."""
        if not self._interleaved or self._exclusive:
            return
        for lane in sorted(self._training - self._unresponsive):
            current = self._slices.get(lane)
            if current is None or current.ended:
                continue
            first_s = COMPUTING_S if self._race.computes(lane) else self._race.patience_s(lane)
            part_s = min(first_s * 2 ** (current.parts - 1), max(first_s, LONGEST_PART_S))
            if self._clock_ns() - current.since_ns < part_s * 1e9:
                continue
            others = [one for one in self._runnable if one not in self._unresponsive]
            short = [one for one in others if one in self._slices and self._slices[one].parts == 1]
            if self._order.split(lane, others, short):
                self._suspend(lane)
                self._act()

    def responded(self, lane: str) -> bool:
        """Note an event of a lane; return False if the lane was suspended since, so that it still hangs."""
        if lane in self._unresponsive:
            if self._interleaved and lane in self._ready and lane not in self._training:
                return False
            self._unresponsive.discard(lane)
            self._act()
        return True

    def spare_loaded(self) -> None:
        """Note that the time is over that a spare worker had between two rounds."""
        self._spare_loads = False
        self._act()

    def pause(self, lanes: Iterable[str]) -> None:
        """Pause lanes."""
        for lane in lanes:
            self._paused.add(lane)
            if lane in self._training:
                self._processes.send(lane, Pause())
            elif lane in self._ready - self._ended - self._unresponsive:
                self._race.paused(lane)
        self._act()

    def resume(self, lanes: Iterable[str]) -> None:
        """Let paused lanes train on."""
        self._paused.difference_update(lanes)
        self._act()

    def set_mode(self, mode: str) -> None:
        """Change the mode; the slice that runs is ended first."""
        before = self._interleaved
        self._mode = mode
        self._change_over(before)

    def set_exclusive(self, lane: str, slice_s: float | None = None) -> None:
        """Train one lane alone, in slices of `slice_s` seconds; "" lets all train as the mode says."""
        before = self._interleaved
        self._exclusive, self._exclusive_slice_s = lane, slice_s
        self._change_over(before)

    def _change_over(self, interleaved_before: bool) -> None:
        """Change the mode when no lane trains."""
        if self._interleaved != interleaved_before:
            self._order.break_off()
            if not self._interleaved:
                self._in_slice = set()
                self._race.granted("")
            for lane in self._lanes if self._interleaved else ():
                if lane in self._training:
                    self._processes.send(lane, Pause())
                elif lane in self._ready - self._ended:
                    self._processes.suspend(lane)
        self._act()

    @property
    def _interleaved(self) -> bool:
        return interleaved(self._mode, self._exclusive, len(self._lanes))

    def _suspend(self, lane: str) -> None:
        self._training.discard(lane)
        self._processes.suspend(lane)
        if lane in self._slices:
            self._slices[lane].suspend(self._clock_ns())

    def _stopped(self, lane: str) -> None:
        current = self._slices.get(lane)
        if current is not None and not current.ended:
            current.end(self._clock_ns())
        self._training.discard(lane)
        self._unresponsive.discard(lane)
        if self._interleaved and lane not in self._ended:
            self._processes.suspend(lane)
        self._act()

    @property
    def _all_ready(self) -> bool:
        awaited = set(self._lanes) - self._unresponsive - self._ended
        return awaited <= self._ready

    @property
    def _runnable(self) -> list[str]:
        may = self._ready - self._ended - self._paused
        return [lane for lane in self._lanes if lane in may and self._exclusive in ("", lane)]

    def _act(self) -> None:
        all_ready, runnable = self._all_ready, self._runnable
        if not self._started:
            if not all_ready or not runnable:
                return
            self._started = True
            self._race.started()
        if self._interleaved:
            began = all_ready and not self._spare_loads and self._grant_slices(runnable)
            if not began and (not self._training or self._in_slice - self._training):
                self._grant("")
        else:
            for lane in runnable:
                if lane not in self._training:
                    self._start(lane, Run())
        if not self._training:
            self._processes.set_quiet(False)

    def _grant_slices(self, runnable: Sequence[str]) -> bool:
        """Grant slices to the lanes that are due on idle machines; return whether any began."""
        order = self._order
        if not self._training and order.round_over and not self._exclusive and runnable:
            if order.round >= self._renewed_in + LEAST_ROUNDS and self._race.renew(runnable):
                self._renewed_in = order.round
                return False
            may_load = order.round != self._spare_loaded_in and order.round >= FIRST_ROUNDS
            if may_load and self._processes.load_spare(self.spare_loaded):
                self._spare_loads, self._spare_loaded_in = True, order.round
                return False
        began = False
        healthy = [lane for lane in runnable if lane not in self._unresponsive]
        if healthy and order.upcoming % HUNG_EVERY:
            runnable = healthy
        while (due := order.next(runnable, self._training)) is not None:
            lane, number = due
            self._grant(lane)
            self._start(lane, RunSlice(round=number, seconds=self._seconds(lane)))
            began = True
        return began

    def _seconds(self, lane: str) -> float:
        if self._exclusive and self._exclusive_slice_s:
            return self._exclusive_slice_s
        beside = [one.trained_ns / 1e9 for name, one in self._slices.items() if name != lane]
        return max(self._slice_s, SHARE * max(beside, default=0.0))

    def _grant(self, lane: str) -> None:
        """Record the beginning of a slice and the running ones; "" if a slice ended and none begins."""
        beside = [one for one in self._lanes if one in self._in_slice & self._training]
        self._in_slice = {*beside, lane} - {""}
        self._race.granted(lane, beside)

    def _start(self, lane: str, request: Request) -> None:
        self._training.add(lane)
        self._processes.set_quiet(True)
        before, now_ns = self._slices.get(lane), self._clock_ns()
        in_middle = before is not None and not before.ended
        if before is not None and in_middle:
            before.resume(now_ns)
        elif isinstance(request, RunSlice):
            again = before is not None and before.round == request.round
            self._slices[lane] = Slice(request.round, now_ns, before.parts if before is not None and again else 1)
        self._processes.continue_(lane)
        if isinstance(request, Run) or not (in_middle or lane in self._unresponsive):
            self._processes.send(lane, request)

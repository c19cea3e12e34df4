"""Decides who trains when."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from tfmon.lanes.lane_process import LaneProcess
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.lane_events import PAUSED, PhaseEntered
from tfmon.model.race import TURNS, interleaved
from tfmon.model.requests import Pause, Request, Run, RunSlice
from tfmon.model.session import Session

SLICE_S = 0.5
SHARE = 0.05
"""Least share of the longest slice: it lowers the error of a lane of short steps."""
HUNG_EVERY = 32
"""Rounds between two slices of an unresponsive lane."""


@dataclass(eq=False)
class Scheduler:
    """Decides which lanes train.

    The order of slices is A B, B A, A B, … so that a drift of the machine affects all lanes equally. A round ends
    when all machines have finished it. A lane that cannot train is skipped, and joins the next round later.

    All lanes get the start signal when the last is ready. When interleaved, a lane that does not train is
    suspended: its input pipeline would use the CPU. No slice begins while a lane gets ready. Lanes of different
    machines train at the same time. A slice ends with a step.

    An unresponsive lane is suspended, too. It sometimes gets a slice; if it wakes up, it ends the slice in which
    it hung. The others begin without a lane that hangs before it is ready.

    Thread: one at a time; the caller holds a lock.
    """

    session: Session
    processes: Mapping[str, LaneProcess]
    """Changed by the caller."""
    start_clock: Callable[[], object]
    """Called with the start signal."""
    clock_ns: Callable[[], int] = time.monotonic_ns

    def __post_init__(self) -> None:
        self.begin((), TURNS, SLICE_S)

    def begin(
        self, lanes: Sequence[str], mode: str, slice_s: float, machines: Mapping[str, str] | None = None
    ) -> None:
        """Schedule a new race."""
        self._lanes = list(lanes)
        self._machines = dict(machines or {})
        self._mode = mode
        self._slice_s = slice_s
        self._round = 0
        self._left: list[str] = []
        """Lanes without a slice in this round."""
        self._started = False
        self._ready: set[str] = set()
        self._ended: set[str] = set()
        self._paused: set[str] = set()
        self._training: set[str] = set()
        self._in_slice: set[str] = set()
        self.unresponsive: set[str] = set()
        self._began_ns: dict[str, int | None] = {}
        """`None` if suspended since."""
        self._took_s: dict[str, float] = {}
        self._exclusive = ""
        self._exclusive_slice_s: float | None = None

    def ready(self, lane: str) -> None:
        """Note that a lane is warm. Lanes of short steps train first."""
        if not self._started:
            self._lanes.remove(lane)
            self._lanes.append(lane)
        self._ready.add(lane)
        self._ended.discard(lane)
        self._stopped(lane)

    def idle(self, lane: str) -> None:
        """Note the end of a slice, or a pause."""
        if lane in self._paused:
            self._record_pause(lane)
        self._stopped(lane)

    def ended(self, lane: str) -> None:
        """Note the end of training."""
        self._ended.add(lane)
        self._training.discard(lane)
        self.unresponsive.discard(lane)
        self._act()

    def restarting(self, lane: str) -> None:
        """Note a new process."""
        self._began_ns.pop(lane, None)
        self._took_s.pop(lane, None)
        for group in (self._ready, self._ended, self._training, self.unresponsive):
            group.discard(lane)
        self._act()

    def skip(self, lane: str) -> None:
        """Continue without an unresponsive lane."""
        self.unresponsive.add(lane)
        if self._interleaved and lane in self._training:
            self._training.discard(lane)
            self._suspend(lane)
            if lane in self._began_ns:
                self._began_ns[lane] = None
        self._act()

    def responded(self, lane: str) -> bool:
        """Note an event of an unresponsive lane; return False if it still hangs: it was suspended since."""
        if self._interleaved and lane in self._ready and lane not in self._training:
            return False
        self.unresponsive.discard(lane)
        self._act()
        return True

    def pause(self, lanes: Iterable[str]) -> None:
        """Pause lanes."""
        for lane in lanes:
            self._paused.add(lane)
            if lane in self._training:
                self._send(lane, Pause())
            elif lane in self._ready - self._ended - self.unresponsive:
                self._record_pause(lane)
        self._act()

    def resume(self, lanes: Iterable[str]) -> None:
        """Resume lanes."""
        self._paused.difference_update(lanes)
        self._act()

    def set_mode(self, mode: str) -> None:
        """Change the mode after the running slice."""
        before = self._interleaved
        self._mode = mode
        self._change_over(before)

    def set_exclusive(self, lane: str, slice_s: float | None = None) -> None:
        """Train one lane alone, in slices of `slice_s` seconds; "" ends that."""
        before = self._interleaved
        self._exclusive, self._exclusive_slice_s = lane, slice_s
        self._change_over(before)

    def _change_over(self, interleaved_before: bool) -> None:
        if self._interleaved != interleaved_before:
            self._left = []
            if not self._interleaved:
                self._in_slice = set()
                self.session.grant_slice("", ())
            for lane in self._lanes if self._interleaved else ():
                if lane in self._training:
                    self._send(lane, Pause())
                elif lane in self._ready - self._ended:
                    self._suspend(lane)
        self._act()

    @property
    def _interleaved(self) -> bool:
        return interleaved(self._mode, self._exclusive, len(self._lanes))

    def _send(self, lane: str, request: Request) -> None:
        if lane in self.processes:
            self.processes[lane].send(request)

    def _suspend(self, lane: str) -> None:
        if lane in self.processes:
            self.processes[lane].suspend()

    def _record_pause(self, lane: str) -> None:
        self.session.accept(PhaseEntered(lane=lane, at_ns=self.clock_ns(), phase=PAUSED))

    def _stopped(self, lane: str) -> None:
        began_ns = self._began_ns.pop(lane, None)
        if began_ns is not None:
            self._took_s[lane] = (self.clock_ns() - began_ns) / 1e9
        self._training.discard(lane)
        self.unresponsive.discard(lane)
        if self._interleaved and lane not in self._ended:
            self._suspend(lane)
        self._act()

    def _act(self) -> None:
        all_ready = set(self._lanes) - self.unresponsive - self._ended <= self._ready
        may = self._ready - self._ended - self._paused
        runnable = [lane for lane in self._lanes if lane in may and self._exclusive in ("", lane)]
        if not self._started:
            if not all_ready or not runnable:
                return
            self._started = True
            self.start_clock()
        if self._interleaved:
            began = all_ready and self._grant_slices(runnable)
            if not began and (not self._training or self._in_slice - self._training):
                self._grant("")
        else:
            for lane in runnable:
                if lane not in self._training:
                    self._start(lane, Run())

    def _grant_slices(self, runnable: Sequence[str]) -> bool:
        began = False
        healthy = [lane for lane in runnable if lane not in self.unresponsive]
        upcoming = self._round if self._left else self._round + 1
        if healthy and upcoming % HUNG_EVERY:
            runnable = healthy
        while (lane := self._next(runnable)) is not None:
            self._grant(lane)
            self._start(lane, RunSlice(round=self._round, seconds=self._seconds(lane)))
            began = True
        return began

    def _next(self, lanes: Sequence[str]) -> str | None:
        """Return a lane whose slice can begin."""
        if not self._training:
            self._left = [lane for lane in self._left if lane in lanes]
            if not self._left and lanes:
                self._round += 1
                self._left = list(lanes) if self._round % 2 else list(reversed(lanes))
        busy = {self._machines.get(lane) for lane in self._training}
        free = (lane for lane in self._left if lane in lanes and self._machines.get(lane) not in busy)
        lane = next(free, None)
        if lane is not None:
            self._left.remove(lane)
        return lane

    def _seconds(self, lane: str) -> float:
        if self._exclusive and self._exclusive_slice_s:
            return self._exclusive_slice_s
        beside_s = [seconds for name, seconds in self._took_s.items() if name != lane]
        return max(self._slice_s, SHARE * max(beside_s, default=0.0))

    def _grant(self, lane: str) -> None:
        """An empty name records only the end of a slice."""
        beside = [lane for lane in self._lanes if lane in self._in_slice & self._training]
        self._in_slice = {*beside, lane} - {""}
        self.session.grant_slice(lane, beside)

    def _start(self, lane: str, request: Request) -> None:
        self._training.add(lane)
        if lane in self.processes:
            self.processes[lane].continue_()
        if isinstance(request, RunSlice):
            if lane in self._began_ns or lane in self.unresponsive:
                return  # an unfinished slice
            self._began_ns[lane] = self.clock_ns()
        self._send(lane, request)

"""Who trains when: the start signal, slices and rounds, pauses. Knows lanes by name; others carry it out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from tfmon.model.race import TURNS
from tfmon.model.requests import Pause, Request, Run, RunSlice

FIRST_ROUNDS = 8
"""The spare worker does not load between the first rounds: they bring the first verdict."""


class LaneProcesses(Protocol):
    """The processes of the lanes, and a spare worker."""

    def send(self, lane: str, request: Request) -> None:
        """Send a request to a lane."""

    def suspend(self, lane: str) -> None:
        """Stop a lane's process and all its threads."""

    def continue_(self, lane: str) -> None:
        """Continue a lane's suspended process."""

    def set_quiet(self, quiet: bool) -> None:
        """Let nothing run besides the lanes while one of them trains."""

    def load_spare(self, done: Callable[[], None]) -> bool:
        """Let the spare worker load for a while, and call `done` then; return False if it needs no time."""


class RaceActions(Protocol):
    """What is recorded of a decision."""

    def started(self) -> None:
        """Record that the lanes got the start signal."""

    def granted(self, lane: str, beside: Sequence[str] = ()) -> None:
        """Record whose slice begins, "" for nobody's, and which slices of other machines run on."""

    def paused(self, lane: str) -> None:
        """Record that a lane is paused which does not train at the moment."""

    def renew(self, lanes: Sequence[str]) -> bool:
        """Replace the processes of lanes by fresh ones, if that is due; return whether they are being replaced."""


def interleaved(mode: str, exclusive: str, lanes: int) -> bool:
    """Return whether the lanes train in slices, one at a time on each machine."""
    return bool(exclusive) or (mode == TURNS and lanes > 1)


class Scheduler:
    """Decides which lanes train.

    All lanes get the start signal together, when the last of them is ready. In turns, a lane that does not train
    is suspended: otherwise its input pipeline would go on filling its buffers, which takes the CPU from the lane
    that is measured, and gives it a head start in its own next slice. While a lane gets ready, no slice is
    granted: no lane would have the machine for itself.

    Lanes of one machine take turns, and lanes of different machines train at the same time. The next round begins
    when every lane has had its slice: each round has one slice of every lane, as on one machine.

    An unresponsive lane is skipped, and suspended like every lane that does not train: when it wakes up, it would
    take the CPU from the one that is measured. In every round it is continued for a slice, so that it can wake up;
    then it ends the slice that it hung in, and is a lane like the others again. One that hangs before it is ready
    is not suspended, and the others begin without it.

    Thread: one at a time; the caller holds a lock.
    """

    def __init__(self, processes: LaneProcesses, race: RaceActions) -> None:
        self._processes = processes
        self._race = race
        self.begin((), TURNS, 0.5)

    def begin(
        self, lanes: Sequence[str], mode: str, slice_s: float, machines: Mapping[str, str] | None = None
    ) -> None:
        """Take over the lanes of a new race, none of which is ready yet.

        Args:
            lanes: Their names.
            mode: How they share the machine.
            slice_s: How long a slice lasts.
            machines: What two lanes share that train on one machine; None where all do.
        """
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
        """The lanes whose slices run, as it was recorded last."""
        self._unresponsive: set[str] = set()
        self._spare_loads = False
        self._spare_loaded_in: int | None = None
        self._exclusive = ""
        self._exclusive_slice_s: float | None = None

    @property
    def busy(self) -> bool:
        """True while a lane trains."""
        return bool(self._training)

    # ---------------------------------------------------------------- what the lanes say

    def ready(self, lane: str) -> None:
        """Note that a lane is warm and waits."""
        self._ready.add(lane)
        self._ended.discard(lane)
        self._stopped(lane)

    def idle(self, lane: str) -> None:
        """Note that a lane ended its slice, or paused."""
        if lane in self._paused:
            self._race.paused(lane)
        self._stopped(lane)

    def ended(self, lane: str) -> None:
        """Note that a lane will not train any more."""
        self._ended.add(lane)
        self._training.discard(lane)
        self._unresponsive.discard(lane)
        self._act()

    def restarting(self, lane: str) -> None:
        """Note that a lane's process is replaced by a new one."""
        for group in (self._ready, self._ended, self._training, self._unresponsive):
            group.discard(lane)
        self._act()

    def skip(self, lane: str) -> None:
        """Go on without an unresponsive lane, until it says something again."""
        self._unresponsive.add(lane)
        if self._interleaved and lane in self._training:
            self._training.discard(lane)
            self._processes.suspend(lane)
        self._act()

    def responded(self, lane: str) -> bool:
        """Note that a lane said something; return False if it was suspended since, so that it hangs still."""
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

    # ---------------------------------------------------------------- what the user requests

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
        """Let one lane train by itself, in slices of so many seconds; "" lets all train as the mode says."""
        before = self._interleaved
        self._exclusive, self._exclusive_slice_s = lane, slice_s
        self._change_over(before)

    def _change_over(self, interleaved_before: bool) -> None:
        """Go over to slices when no lane trains any more, or to training at once."""
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

    # ---------------------------------------------------------------- decisions

    @property
    def _interleaved(self) -> bool:
        return interleaved(self._mode, self._exclusive, len(self._lanes))

    def _stopped(self, lane: str) -> None:
        self._training.discard(lane)
        self._unresponsive.discard(lane)
        if self._interleaved and lane not in self._ended:
            self._processes.suspend(lane)
        self._act()

    def _act(self) -> None:
        awaited = self._ready | set(self._lanes) - self._unresponsive
        active = [lane for lane in self._lanes if lane not in self._ended and lane in awaited]
        all_ready = all(lane in self._ready for lane in active)
        runnable = [lane for lane in active if lane in self._ready and lane not in self._paused]
        if self._exclusive:
            runnable = [lane for lane in runnable if lane == self._exclusive]
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
        """Let every lane that is due train on a machine where none does; return whether any began."""
        order = self._order
        if not self._training and order.round_over and not self._exclusive and runnable:
            if order.round and self._race.renew(runnable):
                return False
            may_load = order.round != self._spare_loaded_in and order.round >= FIRST_ROUNDS
            if may_load and self._processes.load_spare(self.spare_loaded):
                self._spare_loads, self._spare_loaded_in = True, order.round
                return False
        began = False
        while (due := order.next(runnable, self._training)) is not None:
            lane, number = due
            self._grant(lane)
            seconds = self._exclusive_slice_s if self._exclusive and self._exclusive_slice_s else self._slice_s
            self._start(lane, RunSlice(round=number, seconds=seconds))
            began = True
        return began

    def _grant(self, lane: str) -> None:
        """Record whose slice begins, and whose run on; "" where one has ended and none begins."""
        beside = [one for one in self._lanes if one in self._in_slice & self._training]
        self._in_slice = {*beside, lane} - {""}
        self._race.granted(lane, beside)

    def _start(self, lane: str, request: Request) -> None:
        self._training.add(lane)
        self._processes.set_quiet(True)
        self._processes.continue_(lane)
        if lane not in self._unresponsive:  # an unresponsive lane is in the middle of the slice that it hung in
            self._processes.send(lane, request)


class RoundOrder:
    """The order of slices: A B, B A, A B, … so that a drift of the machine affects all lanes alike.

    Each machine has its own lanes in that order, and a round is over when all machines are through. A lane that
    cannot train is skipped, and one that comes back joins the next round.
    """

    def __init__(self, machines: Mapping[str, str] | None = None) -> None:
        """Order lanes; `machines` says what two lanes share that train on one machine, None that all do."""
        self.round = 0
        self._machines = machines or {}
        self._left: list[str] = []

    @property
    def round_over(self) -> bool:
        """True when every lane that can train has had its slice of the round, or has it now."""
        return not self._left

    def next(self, lanes: Sequence[str], training: Collection[str] = ()) -> tuple[str, int] | None:
        """Return a lane whose slice can begin, and its round; None when there is none.

        Args:
            lanes: Those that can train.
            training: Those that train now; nothing else begins on their machines, and no round before they end.
        """
        if not training:
            self._left = [lane for lane in self._left if lane in lanes]
            if not self._left and lanes:
                self.round += 1
                self._left = list(lanes) if self.round % 2 else list(reversed(lanes))
        busy = {self._machines.get(lane) for lane in training}
        lane = next((one for one in self._left if one in lanes and self._machines.get(one) not in busy), None)
        if lane is None:
            return None
        self._left.remove(lane)
        return lane, self.round

    def break_off(self) -> None:
        """Drop the rest of the round; the next slice begins another one."""
        self._left = []

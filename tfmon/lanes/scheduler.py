"""Who trains when: the start signal, turns, pauses. Knows lanes by name; others carry out its orders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from tfmon.model.session import TURNS
from tfmon.model.wire import Pause, Request, Run, RunSlice


class LaneActions(Protocol):
    """What a scheduler can have done."""

    def send(self, lane: str, request: Request) -> None:
        """Send a request to a lane."""

    def freeze(self, lane: str) -> None:
        """Stop a lane's process and all its threads."""

    def thaw(self, lane: str) -> None:
        """Let a frozen lane's process go on."""

    def started(self) -> None:
        """Note that the lanes got the start signal."""

    def turn(self, lane: str) -> None:
        """Note whose turn it is; "" for nobody's."""

    def paused(self, lane: str) -> None:
        """Note that a lane is paused which stood still already."""

    def measuring(self, *, yes: bool) -> None:
        """Note whether a lane trains, so that nothing else may run."""

    def lend(self) -> bool:
        """Let something else run for a while between two rounds, if there is anything; `returned` ends that."""


class Scheduler:
    """Decides which lanes train.

    All lanes get the start signal together, when the last of them is ready. In turns, a lane that does not
    train is frozen: otherwise its input pipeline would go on filling its buffers, which takes the CPU from the
    lane that is measured, and would give it a head start in its own next slice. While a lane gets ready,
    nobody has a turn, for nobody would be alone.

    A lane that hangs is passed over: the others go on, and it is frozen like every lane whose turn it is not, for
    when it wakes up it would take the CPU from the one that is measured. In every round it is thawed for a slice,
    so that it can wake up; then it ends the slice that it hung in, and is a lane like the others again. One that
    hangs before it is ready is left to itself, and the others begin without it.

    Thread: one at a time; the caller holds a lock.
    """

    def __init__(self, orders: LaneActions) -> None:
        self._actions = orders
        self.begin((), TURNS, 0.5)

    def begin(self, lanes: Sequence[str], mode: str, slice_s: float) -> None:
        """Take over the lanes of a new race, none of which is ready yet."""
        self._lanes = list(lanes)
        self._mode = mode
        self._slice_s = slice_s
        self._order = RoundOrder()
        self._going = False
        self._ready: set[str] = set()
        self._over: set[str] = set()
        self._held: set[str] = set()
        self._moving: set[str] = set()
        self._lent = False
        self._lent_after: int | None = None
        self._silent: set[str] = set()
        self._exclusive = ""
        self._exclusive_slice_s: float | None = None

    # ------------------------------------------------------------ what the lanes say

    def ready(self, lane: str) -> None:
        """Take note that a lane is warm and waits."""
        self._ready.add(lane)
        self._over.discard(lane)
        self._moving.discard(lane)
        self._silent.discard(lane)
        self._rest(lane)

    def stood_still(self, lane: str) -> None:
        """Take note that a lane ended its slice, or heeded a Pause."""
        self._moving.discard(lane)
        self._silent.discard(lane)
        if lane in self._held:
            self._actions.paused(lane)
        self._rest(lane)

    def over(self, lane: str) -> None:
        """Take note that a lane will not train any more."""
        self._over.add(lane)
        self._moving.discard(lane)
        self._silent.discard(lane)
        self._act()

    def returned(self) -> None:
        """Take note that the time between two rounds that was lent is over."""
        self._lent = False
        self._act()

    def restarting(self, lane: str) -> None:
        """Take note that a lane's process is replaced by a new one."""
        for group in (self._ready, self._over, self._moving, self._silent):
            group.discard(lane)
        self._act()

    def pass_over(self, lane: str) -> None:
        """Go on without a lane that hangs, until it is heard again."""
        self._silent.add(lane)
        if self._takes_turns and lane in self._moving:
            self._moving.discard(lane)
            self._actions.freeze(lane)
        self._act()

    def heard(self, lane: str) -> bool:
        """Take note that a lane spoke; return False if it hung and was frozen since, so that it hangs still."""
        if lane in self._silent:
            if self._takes_turns and lane in self._ready and lane not in self._moving:
                return False
            self._silent.discard(lane)
            self._act()
        return True

    # ------------------------------------------------------------ what the user wishes

    def pause(self, lanes: Iterable[str]) -> None:
        """Pause lanes."""
        for lane in lanes:
            self._held.add(lane)
            if lane in self._moving:
                self._actions.send(lane, Pause())
            elif lane in self._ready - self._over - self._silent:
                self._actions.paused(lane)
        self._act()

    def resume(self, lanes: Iterable[str]) -> None:
        """Let paused lanes train on."""
        self._held.difference_update(lanes)
        self._act()

    def set_mode(self, mode: str) -> None:
        """Change between turns and training at once; a slice that is under way is ended."""
        took_turns = self._takes_turns
        self._mode = mode
        self._change_over(took_turns)

    def set_exclusive(self, lane: str, slice_s: float | None = None) -> None:
        """Let one lane train by itself, in slices of so many seconds; "" lets all train as the mode says."""
        took_turns = self._takes_turns
        self._exclusive, self._exclusive_slice_s = lane, slice_s
        self._change_over(took_turns)

    def _change_over(self, took_turns: bool) -> None:
        """Go over to turns, or to training at once when the slice that is under way is over."""
        if self._takes_turns != took_turns:
            self._order.break_off()
            if not self._takes_turns:
                self._actions.turn("")
            for lane in self._lanes if self._takes_turns else ():
                if lane in self._moving:
                    self._actions.send(lane, Pause())
                elif lane in self._ready - self._over:
                    self._actions.freeze(lane)
        self._act()

    @property
    def busy(self) -> bool:
        """True while a lane trains."""
        return bool(self._moving)

    # ------------------------------------------------------------ inside

    @property
    def _takes_turns(self) -> bool:
        return bool(self._exclusive) or (self._mode == TURNS and len(self._lanes) > 1)

    def _rest(self, lane: str) -> None:
        if self._takes_turns:
            self._actions.freeze(lane)
        self._act()

    def _act(self) -> None:
        waited_for = self._ready | set(self._lanes) - self._silent
        active = [lane for lane in self._lanes if lane not in self._over and lane in waited_for]
        all_ready = all(lane in self._ready for lane in active)
        runnable = [lane for lane in active if lane in self._ready and lane not in self._held]
        if self._exclusive:
            runnable = [lane for lane in runnable if lane == self._exclusive]
        if not self._going:
            if not all_ready or not runnable:
                return
            self._going = True
            self._actions.started()
        if self._takes_turns:
            if not self._moving and not self._lent and all_ready:
                self._deal(runnable)
            elif not self._moving:
                self._actions.turn("")
        else:
            for lane in runnable:
                if lane not in self._moving:
                    self._start(lane, Run())
        if not self._moving:
            self._actions.measuring(yes=False)

    def _deal(self, runnable: Sequence[str]) -> None:
        due = self._order.round_over and self._order.round != self._lent_after and not self._exclusive
        if runnable and due and self._actions.lend():
            self._lent, self._lent_after = True, self._order.round
            self._actions.turn("")
            return
        dealt = self._order.next(runnable)
        if dealt is None:
            self._actions.turn("")
            return
        lane, number = dealt
        self._actions.turn(lane)
        seconds = self._exclusive_slice_s if self._exclusive and self._exclusive_slice_s else self._slice_s
        self._start(lane, RunSlice(round=number, seconds=seconds))

    def _start(self, lane: str, request: Request) -> None:
        self._moving.add(lane)
        self._actions.measuring(yes=True)
        self._actions.thaw(lane)
        if lane not in self._silent:  # else it is in the middle of the slice that it hung in
            self._actions.send(lane, request)


# ---------------- whose turn it is: lanes alternate in the order A B, B A, A B, … so that a drift hits both alike


class RoundOrder:
    """Deals out turns in rounds; every other round runs backwards.

    A lane that cannot run is passed over, and one that comes back joins the next round.
    """

    def __init__(self) -> None:
        self.round = 0
        self._left: list[str] = []

    @property
    def round_over(self) -> bool:
        """True when every lane that can run has had its turn of the round."""
        return not self._left

    def next(self, lanes: Sequence[str]) -> tuple[str, int] | None:
        """Return the lane whose turn is next and the round it belongs to; None when no lane can run."""
        self._left = [lane for lane in self._left if lane in lanes]
        if not self._left and lanes:
            self.round += 1
            self._left = list(lanes) if self.round % 2 else list(reversed(lanes))
        return (self._left.pop(0), self.round) if self._left else None

    def break_off(self) -> None:
        """Leave out the rest of the round; the next turn begins another one."""
        self._left = []

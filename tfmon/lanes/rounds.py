"""The order of slices in rounds, and the facts of a slice. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tfmon.model.lane_state import LaneState
from tfmon.model.lane_statistics import LATEST
from tfmon.model.readings import known

OTHER_WORK_S, TIMES_STEP = 3.0, 3
"""A lane that trains for this time, and this many times its longest step, does something other than steps."""
COMPUTING_PCT = 80
"""CPU of a lane from which on its step computes and does not wait: 100 is one core."""


@dataclass(slots=True)
class Slice:
    """A slice of a lane, with the parts that it is trained in."""

    round: int
    since_ns: int
    """Beginning of its present part, or end of its last one."""
    parts: int = 1
    trained_ns: int = 0
    """Duration of the finished parts."""
    ended: bool = False

    def suspend(self, now_ns: int) -> None:
        """End a part in the middle of the slice."""
        self.trained_ns += now_ns - self.since_ns
        self.since_ns = now_ns

    def resume(self, now_ns: int) -> None:
        """Begin another part."""
        self.since_ns, self.parts = now_ns, self.parts + 1

    def end(self, now_ns: int) -> None:
        """End the last part, and the slice."""
        self.trained_ns += now_ns - self.since_ns
        self.ended = True


def computes(lane: LaneState) -> bool:
    """Return whether a suspension leaves a step's running time unchanged: for a scenario that keeps a CPU busy."""
    cpu_pct = known(lane.tree.cpu_pct) or 0.0
    return lane.spec.kind == "cpu" and not lane.script.command and cpu_pct >= COMPUTING_PCT


def slice_patience_s(lane: LaneState) -> float:
    """Return after how many seconds a lane that has not ended its slice does something else than its steps."""
    before_ns = max(lane.heartbeat.longest_window_ns, lane.heartbeat.warm_up_ns)
    longest_ns = max((one.span_ns for one in lane.points[-LATEST:] if one.steady), default=before_ns)
    return max(OTHER_WORK_S, TIMES_STEP * longest_ns / 1e9)


class RoundOrder:
    """The order of slices: A B, B A, A B, … so that a drift of the machine affects all lanes equally.

    The lanes of each machine take turns, and a round ends when all machines have finished it. A lane that cannot
    train is skipped, and a lane that returns joins the next round.
    """

    def __init__(self, machines: Mapping[str, str] | None = None) -> None:
        """Order lanes; `machines` says what two lanes share that train on one machine, None that all do."""
        self.round = 0
        self._machines = machines or {}
        self._left: list[str] = []

    @property
    def upcoming(self) -> int:
        """The round of the next slice."""
        return self.round if self._left else self.round + 1

    @property
    def round_over(self) -> bool:
        """True when every lane that can train has had its slice of the round, or has it now."""
        return not self._left

    def next(self, lanes: Sequence[str], training: Collection[str] = ()) -> tuple[str, int] | None:
        """Return a lane whose slice can begin beside the training ones, and its round, or `None`."""
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

    def split(self, lane: str, lanes: Collection[str], short: Collection[str]) -> bool:
        """Make a lane end its slice after others of its machine, else after `short` ones; return if any are."""
        here = {one for one in lanes if self._machines.get(one) == self._machines.get(lane)} - {lane}
        more = [one for one in self._left if one in here] or [one for one in short if one in here]
        if more:
            self._left = [*(one for one in self._left if one not in more), *more, lane]
        return bool(more)

    def break_off(self) -> None:
        """Drop the rest of the round; the next slice begins another one."""
        self._left = []

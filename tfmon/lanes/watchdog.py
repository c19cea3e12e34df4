"""The watchdog: notices lanes that hang, and times in which tfmon or the machine stood still."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Protocol

from tfmon.model.lane_state import PAUSED, RACING, READY, STARTING, LaneState
from tfmon.model.session import TURNS, Snapshot

# ---------------- when a lane's silence means that it hangs. Pure


LEAST_S = 20.0
"""No shorter silence means anything: a profile, an evaluation or a checkpoint may lie between two steps."""
TIMES_WINDOW, TIMES_WARM_UP = 30, 3
"""How many of its slowest windows, and of its warm-up (which holds a trace and mostly a compilation), a lane may
be silent."""
PREPARING_S = 600.0
"""Patience with imports, building, tracing, and a step that is compiled anew."""
STARTING_S = 60.0
"""Patience with a child that has not said a word; a script's first comes after its imports and data only."""
SCRIPT_S = 60.0
"""Patience with a script between two steps, where it may evaluate, save or fetch data without a word."""


def expected(lane: LaneState, snapshot: Snapshot) -> bool:
    """Return whether a lane's silence means anything: it gets ready, or should be training now."""
    race = snapshot.race
    if lane.over or lane.phase in (READY, PAUSED):
        return False
    if lane.phase != RACING:
        return True
    takes_turns = bool(race.exclusive) or (race.mode == TURNS and len(snapshot.lanes) > 1)
    return race.training == lane.spec.name if takes_turns else True


def patience_s(lane: LaneState, least_s: float = LEAST_S) -> float:
    """Return how long a lane may be silent that is expected to speak."""
    if lane.phase == STARTING and not lane.command:
        return max(least_s, STARTING_S)
    if lane.phase != RACING or lane.requested or _between_steps(lane):
        return max(least_s, PREPARING_S)
    heartbeat = lane.heartbeat
    if lane.command:
        least_s = max(least_s, SCRIPT_S)
    return max(least_s, TIMES_WINDOW * heartbeat.longest_window_ns / 1e9, TIMES_WARM_UP * heartbeat.warm_up_ns / 1e9)


def _between_steps(lane: LaneState) -> bool:
    """Return whether Keras does something else than steps for a script: it validates, or an epoch has ended."""
    progress = lane.progress
    return progress is not None and (progress.doing != "fit" or progress.batch == progress.batches)


def silent_since_ns(lane: LaneState, expected_ns: int, now_ns: int) -> int:
    """Return the lane's last sign of life, or when it was expected to begin.

    A child that tells of a time to come is not believed.
    """
    heard_ns = lane.heartbeat.heard_ns
    return max(expected_ns, heard_ns) if heard_ns <= now_ns else expected_ns


# ----------------

BEAT_S = 0.5
LATE_NS = 2_000_000_000
"""A beat that comes so much too late means that tfmon stood still."""
SLEPT_NS = 1_000_000_000


class Lanes(Protocol):
    """What the watchdog has done about it."""

    def note_stall(self, lane: str, since_ns: int) -> None:
        """Note that a lane hangs; the race goes on without it until it speaks."""

    def pass_over(self, lane: str) -> None:
        """End the turn of a lane that hung before and hangs still."""

    def count_memory_kills(self) -> None:
        """Look how many processes the kernel has killed for lack of memory."""


class Watchdog(threading.Thread):
    """Looks after the lanes twice a second.

    Thread: `close` may be called from any thread; `beat` is the watchdog's own.
    """

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        lanes: Lanes,
        note_gap: Callable[[int, int, float], None],
        *,
        slice_s: float = 0.5,
        least_s: float = LEAST_S,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        asleep_ns: Callable[[], int] | None = None,
    ) -> None:
        """Watch lanes; `least_s` is the shortest silence that counts.

        `note_gap` is told since when until when (stamps) and how many seconds everything stood still.
        """
        super().__init__(name="tfmon-watchdog", daemon=True)
        self._snapshot = snapshot
        self._lanes = lanes
        self._note_gap = note_gap
        self._slice_s = slice_s
        self._least_s = least_s
        self._clock_ns = clock_ns
        self._asleep_ns = asleep_ns or time_asleep_ns
        self._closed = threading.Event()
        self._beat_ns = clock_ns()
        self._slept_ns = self._asleep_ns()
        self._expected_ns: dict[str, int] = {}

    def run(self) -> None:
        """Look after the lanes until closed."""
        while not self._closed.wait(BEAT_S):
            self.beat()

    def close(self) -> None:
        """End the thread soon."""
        self._closed.set()

    def beat(self) -> None:
        """Look after the lanes once."""
        before_ns, slept_before_ns = self._beat_ns, self._slept_ns
        now_ns = self._beat_ns = self._clock_ns()
        self._slept_ns = self._asleep_ns()
        self._lanes.count_memory_kills()
        slept_ns = self._slept_ns - slept_before_ns
        if now_ns - before_ns > LATE_NS or slept_ns > SLEPT_NS:
            self._note_gap(before_ns, now_ns, (now_ns - before_ns + max(0, slept_ns)) / 1e9)
            self._expected_ns.clear()
        self._watch(now_ns)

    def _watch(self, now_ns: int) -> None:
        snapshot = self._snapshot()
        waited_for = {lane.spec.name: lane for lane in snapshot.lanes if expected(lane, snapshot)}
        self._expected_ns = {name: self._expected_ns.get(name, now_ns) for name in waited_for}
        for name, lane in waited_for.items():
            expected_ns = self._expected_ns[name]
            if lane.heartbeat.stalled_since_ns is not None:
                if now_ns - expected_ns > self._slice_s * 1e9:
                    self._expected_ns[name] = now_ns
                    self._lanes.pass_over(name)
                continue
            since_ns = silent_since_ns(lane, expected_ns, now_ns)
            if now_ns - since_ns > patience_s(lane, self._least_s) * 1e9:
                self._expected_ns[name] = now_ns
                self._lanes.note_stall(name, since_ns)


def time_asleep_ns() -> int:
    """Return how long the machine has slept since it was started, up to a constant.

    Source: the clock that counts sleep minus the one that does not; Linux CLOCK_BOOTTIME and CLOCK_MONOTONIC
    (time_namespaces(7)), macOS CLOCK_MONOTONIC and mach_absolute_time, which is Python's `time.monotonic`. Always
    0 where there is no such pair.
    """
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
    if sys.platform == "darwin":
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC) - time.monotonic_ns()
    return 0

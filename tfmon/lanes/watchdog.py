"""Notices hung lanes, and suspensions of tfmon."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable

from tfmon.lanes.group import LaneGroup
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.lane_events import CHANNEL_CLOSED, PAUSED, RACING, READY, STARTING
from tfmon.model.lane_state import LaneState
from tfmon.model.race import interleaved
from tfmon.model.session import Snapshot
from tfmon.system.threads import Failed, start_thread

LEAST_S = 20.0
"""A profile, an evaluation or a checkpoint may be silent."""
TIMES_WINDOW, TIMES_WARM_UP = 5, 3
"""Multiples of the longest windows and of the warm-up."""
PREPARING_S = 600.0
"""For imports, building, tracing, and recompiling."""
STARTING_S = 60.0
"""A script sends its first event after its imports and data."""
SCRIPT_S = 60.0
"""A script evaluates, saves or fetches data between two steps."""


def expected(lane: LaneState, snapshot: Snapshot) -> bool:
    """Return whether a lane must send events: it gets ready or trains."""
    race = snapshot.race
    if lane.over or lane.phase in (READY, PAUSED):
        return False
    if lane.script.not_measured.get("steps", "").startswith(CHANNEL_CLOSED) and len(snapshot.lanes) == 1:
        return False
    if lane.phase != RACING or not interleaved(race.mode, race.exclusive, len(snapshot.lanes)):
        return True
    return lane.spec.name in race.training


def patience_s(lane: LaneState, least_s: float = LEAST_S) -> float:
    """Return the permitted silence of a lane."""
    if lane.phase == STARTING and not lane.script.command:
        return max(least_s, STARTING_S)
    if lane.phase != RACING or lane.changes.requested or lane.script.between_steps:
        return max(least_s, PREPARING_S)
    if lane.script.command:
        least_s = max(least_s, SCRIPT_S)
    window_s, warm_up_s = lane.heartbeat.longest_window_ns / 1e9, lane.heartbeat.warm_up_ns / 1e9
    return max(least_s, TIMES_WINDOW * window_s, TIMES_WARM_UP * warm_up_s)


BEAT_S = 1.0
LATE_NS = 2_000_000_000
SLEPT_NS = 1_000_000_000


def time_asleep_ns() -> int:
    """Return how long the machine has slept, plus a constant, or 0 if unknown.

    Source: time_namespaces(7). On macOS Python's `time.monotonic` is mach_absolute_time.
    """
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
    if sys.platform == "darwin":
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC) - time.monotonic_ns()
    return 0


@dataclass(eq=False)
class Watchdog:
    """Checks the lanes once a second. Thread: any; `beat` is the watchdog's own."""

    snapshot: Callable[[], Snapshot]
    lanes: LaneGroup
    record_suspension: Callable[[int, int, float], None]
    slice_s: float = 0.5
    least_s: float = LEAST_S
    start_s: float = math.inf
    clock_ns: Callable[[], int] = time.monotonic_ns
    asleep_ns: Callable[[], int] = time_asleep_ns

    def __post_init__(self) -> None:
        self._closed = threading.Event()
        self._beat_ns, self._slept_ns = self.clock_ns(), self.asleep_ns()
        self._waited_ns: dict[tuple[str, int], int] = {}
        self._silent_ns: dict[tuple[str, int], int] = {}
        self._asked: set[tuple[str, int]] = set()

    def start(self, failed: Failed) -> None:
        """Start the thread."""
        start_thread("tfmon-watchdog", self.run, failed)

    def run(self) -> None:
        """Check the lanes until closed."""
        self._beat_ns, self._slept_ns = self.clock_ns(), self.asleep_ns()
        while not self._closed.wait(BEAT_S):
            self.beat()

    def close(self) -> None:
        """End the thread soon."""
        self._closed.set()

    def beat(self) -> None:
        """Check the lanes once."""
        before_ns, slept_before_ns = self._beat_ns, self._slept_ns
        now_ns = self._beat_ns = self.clock_ns()
        self._slept_ns = self.asleep_ns()
        self.lanes.count_memory_kills()
        slept_ns = self._slept_ns - slept_before_ns
        if now_ns - before_ns > LATE_NS or slept_ns > SLEPT_NS:
            self.record_suspension(before_ns, now_ns, (now_ns - before_ns + max(0, slept_ns)) / 1e9)
            self._waited_ns.clear()
            self._silent_ns.clear()
        self._check_lanes(now_ns, now_ns - before_ns)

    def _check_lanes(self, now_ns: int, passed_ns: int) -> None:
        snapshot, before_ns, silent_ns = self.snapshot(), self._waited_ns, self._silent_ns
        self._waited_ns, self._silent_ns = {}, {}
        for lane in snapshot.lanes:
            name, heartbeat = lane.spec.name, lane.heartbeat
            key, stalled = (name, heartbeat.heard_ns), heartbeat.stalled_since_ns is not None
            if not lane.over and key not in self._asked and lane.stands_still_s(now_ns) is not None:
                self._asked = {asked for asked in self._asked if asked[0] != name} | {key}
                self.lanes.ask_stack(name)
            waited_ns = before_ns.get(key)
            if not expected(lane, snapshot):
                if waited_ns is not None and not stalled:
                    self._waited_ns[key] = waited_ns
                continue
            self._waited_ns[key] = waited_ns = 0 if waited_ns is None else waited_ns + passed_ns
            self._silent_ns[key] = silent_ns[key] + passed_ns if key in silent_ns else 0
            if self._silent_ns[key] > self.start_s * 1e9 and (
                lane.phase != RACING and (not lane.script.command or snapshot.race.seconds is not None)
            ):
                self.lanes.give_up(name, self._silent_ns[key] / 1e9)
                continue
            limit_s = self.slice_s if stalled else patience_s(lane, self.least_s)
            if waited_ns > limit_s * 1e9:
                self._waited_ns[key] = 0
                if stalled:
                    self.lanes.skip(name)
                else:
                    self.lanes.report_stall(name, now_ns - waited_ns)

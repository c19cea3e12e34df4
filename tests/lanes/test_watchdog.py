"""The watchdog with a clock that is told the time, and lanes that write down what they are told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tfmon.lanes.watchdog import Watchdog, time_asleep_ns
from tfmon.model.lane_state import RACING, WARMING_UP, Heartbeat, LaneState
from tfmon.model.race import TURNS, Machine, Race
from tfmon.model.session import Snapshot
from tfmon.model.spec import LaneSpec

SECOND = 1_000_000_000


class ExperimentControl:
    """Two lanes, a clock, and what the watchdog did about them."""

    def __init__(self) -> None:
        self.now_s, self.slept_s = 100.0, 0.0
        self.lanes = {name: LaneState(LaneSpec(name, name=name), phase=RACING) for name in ("cpu", "gpu:0")}
        self.race = Race(mode=TURNS, training="cpu")
        self.done: list[tuple[object, ...]] = []
        self.gaps: list[tuple[float, float, float]] = []
        self.watchdog = Watchdog(
            lambda: Snapshot(0, Machine(), self.race, tuple(self.lanes.values())),
            self,
            lambda since, until, lasted: self.gaps.append((since / SECOND, until / SECOND, lasted)),
            slice_s=2,
            clock_ns=lambda: round(self.now_s * SECOND),
            asleep_ns=lambda: round(self.slept_s * SECOND),
        )

    def report_stall(self, lane: str, since_ns: int) -> None:
        self.done.append(("stall", lane, since_ns / SECOND))
        self.lanes[lane] = replace(self.lanes[lane], heartbeat=Heartbeat(stalled_since_ns=since_ns))

    def skip(self, lane: str) -> None:
        self.done.append(("skip", lane))

    def count_memory_kills(self) -> None:
        pass

    def heard(self, lane: str) -> None:
        self.lanes[lane] = replace(self.lanes[lane], heartbeat=Heartbeat(heard_ns=round(self.now_s * SECOND)))

    def after(self, seconds: float) -> list[tuple[object, ...]]:
        """Let time pass, beat by beat, and return what was done in it."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s += 0.5
            self.watchdog.beat()
        done, self.done = self.done, []
        return done


@pytest.fixture
def bench():
    return ExperimentControl()


def test_a_lane_that_speaks_now_and_then_is_left_alone(bench):
    for _ in range(20):
        bench.heard("cpu")
        assert bench.after(10) == []


def test_a_silent_lane_is_told_once_with_its_last_sign_of_life(bench):
    bench.heard("cpu")
    assert bench.after(19) == []
    assert bench.after(3) == [("stall", "cpu", 100.5)]


def test_a_turn_begins_the_time_anew(bench):
    bench.heard("cpu")
    bench.race = replace(bench.race, training="gpu:0")
    bench.heard("gpu:0")
    bench.after(15)
    bench.race = replace(bench.race, training="cpu")
    assert bench.after(15) == []
    assert bench.after(6) == [("stall", "cpu", 115.5)]


def test_one_that_hangs_still_gets_a_slice_in_its_turn_and_no_more(bench):
    bench.after(22)
    bench.race = replace(bench.race, training="gpu:0")
    bench.heard("gpu:0")
    assert bench.after(10) == []
    bench.race = replace(bench.race, training="cpu")
    assert bench.after(2) == []
    assert bench.after(1) == [("skip", "cpu")]
    assert bench.after(2.5) == [("skip", "cpu")]


def test_a_slow_first_step_is_no_stall(bench):
    bench.lanes["cpu"] = replace(bench.lanes["cpu"], phase=WARMING_UP)
    bench.heard("cpu")
    assert bench.after(500) == []
    assert bench.after(200)[0][:2] == ("stall", "cpu")


def test_a_late_beat_is_a_gap_and_no_stall(bench):
    bench.heard("cpu")
    bench.after(10)
    bench.now_s += 60
    assert bench.after(0.5) == []
    assert bench.gaps == [(110.0, 170.5, 60.5)]
    assert bench.after(19) == []


def test_a_sleep_that_the_stamps_do_not_count_is_told_with_its_length(bench):
    bench.after(1)
    bench.slept_s += 3_600
    bench.after(0.5)
    assert bench.gaps == [(101.0, 101.5, 3_600.5)]
    bench.after(5)
    assert len(bench.gaps) == 1


def test_a_little_lateness_is_no_gap(bench):
    bench.now_s += 1.4
    bench.after(0.5)
    assert bench.gaps == []


def test_the_clock_of_sleep_stands_still_while_the_machine_is_awake():
    assert abs(time_asleep_ns() - time_asleep_ns()) < 50_000_000

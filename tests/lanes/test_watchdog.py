"""The watchdog with a clock that is set: when a lane counts as hung, suspensions, kills for lack of memory."""

from dataclasses import replace

import pytest
from support.waiting import wait_for

from tfmon.lanes.watchdog import (
    LEAST_S,
    PREPARING_S,
    SCRIPT_S,
    STARTING_S,
    Watchdog,
    expected,
    patience_s,
    time_asleep_ns,
)
from tfmon.model.events import KnobRequested
from tfmon.model.lane_events import (
    BUILDING,
    IMPORTING,
    PAUSED,
    RACING,
    READY,
    STARTING,
    TRACING,
    WARMING_UP,
    Progressed,
)
from tfmon.model.lane_state import ABSENT, DONE, FAILED, PHASES, Changes, Heartbeat, LaneState, ScriptFacts
from tfmon.model.race import CONCURRENT, TURNS, Race
from tfmon.model.session import Snapshot
from tfmon.model.spec import LaneSpec
from tfmon.model.windows import LaneWindow
from tfmon.system.limits import GROUP_KILLS, MACHINE_KILLS, MOST_COUNTS, MemoryKills

SECOND = 1_000_000_000


class Bench:
    def __init__(self) -> None:
        self.now_s, self.slept_s = 100.0, 0.0
        self.lanes = {name: LaneState(LaneSpec(name, name=name), phase=RACING) for name in ("cpu", "gpu:0")}
        self.race = Race(mode=TURNS, training=("cpu",))
        self.done: list[tuple[object, ...]] = []
        self.gaps: list[tuple[float, float, float]] = []
        self.watchdog = Watchdog(
            lambda: Snapshot(0, self.race, tuple(self.lanes.values())),
            self,
            lambda since, until, lasted: self.gaps.append((since / SECOND, until / SECOND, lasted)),
            slice_s=2,
            start_s=900,
            clock_ns=lambda: round(self.now_s * SECOND),
            asleep_ns=lambda: round(self.slept_s * SECOND),
        )

    def report_stall(self, lane: str, since_ns: int) -> None:
        self.done.append(("stall", lane, since_ns / SECOND))
        stalled = replace(self.lanes[lane].heartbeat, stalled_since_ns=since_ns)
        self.lanes[lane] = replace(self.lanes[lane], heartbeat=stalled)

    def give_up(self, lane: str, silent_s: float) -> None:
        self.done.append(("give up", lane, silent_s))
        self.lanes[lane] = replace(self.lanes[lane], phase=FAILED)

    def ask_stack(self, lane: str) -> None:
        self.done.append(("stack", lane))

    def skip(self, lane: str) -> None:
        self.done.append(("skip", lane))

    def count_memory_kills(self) -> None:
        pass

    def heard(self, lane: str) -> None:
        self.lanes[lane] = replace(self.lanes[lane], heartbeat=Heartbeat(heard_ns=round(self.now_s * SECOND)))

    def after(self, seconds: float) -> list[tuple[object, ...]]:
        """Move the clock, beat by beat, and return the actions."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s += 0.5
            self.watchdog.beat()
        done, self.done = self.done, []
        return done


@pytest.fixture
def bench():
    return Bench()


def test_the_stacks_of_a_lane_that_stands_still_are_asked_for_once(bench):
    bench.heard("cpu")
    trained = replace(bench.lanes["cpu"].measurements, recent=(LaneWindow(at_ns=round(bench.now_s * SECOND)),))
    bench.lanes["cpu"] = replace(bench.lanes["cpu"], measurements=trained)
    assert bench.after(4) == []
    assert bench.after(10) == [("stack", "cpu")]


def test_one_that_hangs_still_gets_a_slice_in_its_turn_and_no_more(bench):
    bench.after(22)
    bench.race = replace(bench.race, training=("gpu:0",))
    bench.heard("gpu:0")
    assert bench.after(10) == []
    bench.race = replace(bench.race, training=("cpu",))
    assert bench.after(2) == []
    assert bench.after(1) == [("skip", "cpu")]
    assert bench.after(2.5) == [("skip", "cpu")]


@pytest.mark.parametrize(("command", "seconds", "ends"), [("", None, True), ("x", None, False), ("x", 5, True)])
def test_one_that_says_nothing_while_it_starts_is_ended_a_script_only_in_a_race_with_an_end(
    bench, command, seconds, ends
):
    bench.lanes = {"cpu": replace(bench.lanes["cpu"], phase=WARMING_UP, script=ScriptFacts(command))}
    bench.race = replace(bench.race, seconds=seconds)
    bench.heard("cpu")
    assert bench.after(620)[0][0] == "stall"
    given_up = [done for done in bench.after(300) if done[0] == "give up"]
    assert given_up == ([("give up", "cpu", 900.5)] if ends else [])


def test_a_sleep_is_a_gap_and_a_little_lateness_and_the_time_before_the_watch_are_none(bench):
    bench.now_s += 1.4
    bench.after(0.5)
    bench.now_s += 60
    bench.watchdog.close()
    bench.watchdog.run()
    bench.after(1)
    assert bench.gaps == []
    began_s = bench.now_s
    bench.slept_s += 3_600  # the stamps do not count it
    bench.after(5.5)
    assert bench.gaps == [(began_s, began_s + 0.5, 3_600.5)]
    # It is the difference of two clocks, between whose readings a busy machine may take its time.
    wait_for(lambda: abs(time_asleep_ns() - time_asleep_ns()) < 50_000_000)


LANE = LaneState(LaneSpec("cpu", name="cpu"), phase=RACING)
OTHER = LaneState(LaneSpec("gpu:0", name="gpu:0"), phase=RACING)


@pytest.mark.parametrize(
    ("phase", "race", "is_expected"),
    [
        *((phase, {"mode": CONCURRENT}, False) for phase in (READY, PAUSED, DONE, FAILED, ABSENT)),
        *((phase, {"training": ("gpu:0",)}, True) for phase in PHASES[:5]),
        (RACING, {"mode": CONCURRENT}, True),
        (RACING, {"mode": TURNS, "training": ("cpu",)}, True),
        (RACING, {"mode": TURNS, "training": ("gpu:0",)}, False),
        (RACING, {"mode": CONCURRENT, "exclusive": "gpu:0", "training": ("gpu:0",)}, False),
    ],
)
def test_a_lane_is_expected_to_report_as_it_gets_ready_and_in_its_slice(phase, race, is_expected):
    lane = replace(LANE, phase=phase)
    assert expected(lane, Snapshot(0, Race(**race), (lane, OTHER))) == is_expected


SCRIPT = "python train.py"
XLA_ON = KnobRequested(lane="cpu", at_ns=0, request=1, knob="xla", value=True)
COMPILED = Heartbeat(longest_window_ns=SECOND // 5, warm_up_ns=60 * SECOND)


@pytest.mark.parametrize(
    ("known", "seconds"),
    [
        ({"heartbeat": Heartbeat()}, LEAST_S),
        ({"heartbeat": Heartbeat(longest_window_ns=300 * SECOND)}, 1_500),
        ({"heartbeat": COMPILED}, 180),
        *(({"phase": phase}, PREPARING_S) for phase in (IMPORTING, BUILDING, TRACING, WARMING_UP)),
        ({"phase": STARTING}, STARTING_S),
        ({"phase": STARTING, "script": ScriptFacts(SCRIPT)}, PREPARING_S),
        ({"changes": Changes({"xla": XLA_ON})}, PREPARING_S),
        ({"script": ScriptFacts(SCRIPT)}, SCRIPT_S),
        ({"script": ScriptFacts(SCRIPT, Progressed(at_ns=0, doing="fit", batch=3, batches=10))}, SCRIPT_S),
        ({"script": ScriptFacts(SCRIPT, Progressed(at_ns=0, doing="fit", batch=3))}, SCRIPT_S),
        ({"script": ScriptFacts(SCRIPT, Progressed(at_ns=0, doing="fit", batch=10, batches=10))}, PREPARING_S),
        (
            {"script": ScriptFacts(SCRIPT, Progressed(at_ns=0, doing="validation", batch=10, batches=10))},
            PREPARING_S,
        ),
        ({"script": ScriptFacts(SCRIPT, Progressed(at_ns=0, doing=""))}, PREPARING_S),
    ],
)
def test_how_long_a_lane_may_say_nothing_depends_on_what_it_does_and_did(known, seconds):
    assert patience_s(replace(LANE, **known)) == seconds


def machine(put, count: int) -> None:
    put("proc/vmstat", f"nr_free_pages 5\noom_kill {count}\nswap_ra 1\n")


def test_one_that_came_since_the_lane_was_heard_is_told(put, tmp_path):
    machine(put, 3)
    kills = MemoryKills(tmp_path)
    assert kills.since(9) == ""
    for at_ns in (10, 20):
        kills.count(at_ns)
    machine(put, 4)
    for at_ns in (30, 40, 50):
        kills.count(at_ns)  # a process with much memory takes its time to end
    assert kills.since(25) == MACHINE_KILLS.format("a process")
    assert kills.since(35) == "", "the lane was heard after it"
    for at_ns in range(60, 60 + 10 * MOST_COUNTS, 10):
        kills.count(at_ns)
    assert kills.since(25) == "", "that is too long ago"


@pytest.mark.parametrize(
    ("group", "mount", "events", "limit"),
    [
        ("0::/lanes", "/sys/fs/cgroup rw - cgroup2 cgroup rw", "memory.events", "memory.max"),
        ("4:memory:/lanes\n0::/", "/sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
         "memory.oom_control", "memory.limit_in_bytes"),
    ],
    ids=["version 2", "version 1"],
)  # fmt: skip
def test_the_own_control_group_tells_more_than_the_machine(group, mount, events, limit, put, tmp_path):
    folder = f"{mount.split()[0][1:]}/lanes"
    put("proc/self/cgroup", group + "\n")
    put("proc/self/mountinfo", f"30 1 0:26 / {mount}\n")
    put(f"{folder}/{events}", "oom 0\noom_kill 1\n")
    machine(put, 10)
    kills = MemoryKills(tmp_path)
    put(f"{folder}/{events}", "oom 2\noom_kill 3\n")
    machine(put, 12)
    assert kills.since(9) == GROUP_KILLS.format("2 processes")
    put(f"{folder}/{limit}", f"{2**31}\n")
    assert kills.since(9) == GROUP_KILLS.format("2 processes") + "; its limit is 2.00 GiB"

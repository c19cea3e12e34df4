"""When silence means that a lane hangs, and that a slow first step never does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tfmon.lanes.watchdog import (
    LEAST_S,
    PREPARING_S,
    SCRIPT_S,
    STARTING_S,
    expected,
    patience_s,
    unresponsive_since_ns,
)
from tfmon.model.lane_events import Progressed
from tfmon.model.lane_state import (
    ABSENT,
    BUILDING,
    DONE,
    FAILED,
    IMPORTING,
    PAUSED,
    RACING,
    READY,
    STARTING,
    TRACING,
    WARMING_UP,
    Heartbeat,
    KnobRequest,
    LaneState,
)
from tfmon.model.race import CONCURRENT, TURNS, Machine, Race
from tfmon.model.session import Snapshot
from tfmon.model.spec import LaneSpec

SECOND = 1_000_000_000
LANE = LaneState(LaneSpec("cpu", name="cpu"), phase=RACING)
OTHER = LaneState(LaneSpec("gpu:0", name="gpu:0"), phase=RACING)


def seen(*lanes: LaneState, **race) -> Snapshot:
    return Snapshot(0, Machine(), Race(**race), lanes)


@pytest.mark.parametrize("phase", [READY, PAUSED, DONE, FAILED, ABSENT])
def test_nobody_waits_for_a_lane_that_has_nothing_to_say(phase):
    lane = replace(LANE, phase=phase)
    assert not expected(lane, seen(lane, mode=CONCURRENT))


@pytest.mark.parametrize("phase", [STARTING, IMPORTING, BUILDING, TRACING, WARMING_UP])
def test_a_lane_that_gets_ready_is_waited_for_whosever_turn_it_is(phase):
    lane = replace(LANE, phase=phase)
    assert expected(lane, seen(lane, OTHER, training="gpu:0"))


@pytest.mark.parametrize(
    ("race", "waited_for"),
    [
        ({"mode": CONCURRENT}, ["cpu", "gpu:0"]),
        ({"mode": TURNS, "training": "cpu"}, ["cpu"]),
        ({"mode": TURNS, "training": ""}, []),
        ({"mode": CONCURRENT, "exclusive": "gpu:0", "training": "gpu:0"}, ["gpu:0"]),
    ],
)
def test_a_lane_that_races_is_waited_for_in_its_turn_only(race, waited_for):
    snapshot = seen(LANE, OTHER, **race)
    assert [lane.spec.name for lane in snapshot.lanes if expected(lane, snapshot)] == waited_for


def test_a_lane_alone_is_always_waited_for():
    assert expected(LANE, seen(LANE, mode=TURNS))


@pytest.mark.parametrize(
    ("heartbeat", "seconds"),
    [
        (Heartbeat(), LEAST_S),
        (Heartbeat(longest_window_ns=SECOND // 5, warm_up_ns=SECOND), LEAST_S),
        (Heartbeat(longest_window_ns=3 * SECOND), 90),
        (Heartbeat(longest_window_ns=SECOND // 5, warm_up_ns=60 * SECOND), 180),
    ],
    ids=["nothing known", "quick steps", "slow steps", "a long compilation"],
)
def test_patience_grows_with_the_lanes_own_steps_and_warm_up(heartbeat, seconds):
    assert patience_s(replace(LANE, heartbeat=heartbeat)) == seconds


@pytest.mark.parametrize("phase", [IMPORTING, BUILDING, TRACING, WARMING_UP])
def test_a_slow_first_step_is_no_stall(phase):
    assert patience_s(replace(LANE, phase=phase)) == PREPARING_S >= 600


def test_a_child_has_a_minute_for_its_first_word():
    assert patience_s(replace(LANE, phase=STARTING)) == STARTING_S


def test_a_script_loads_and_prepares_before_its_first_word():
    assert patience_s(replace(LANE, phase=STARTING, command="python train.py")) == PREPARING_S


@pytest.mark.parametrize(
    ("progress", "seconds"),
    [
        (None, SCRIPT_S),
        (Progressed(at_ns=0, doing="fit", batch=3, batches=10), SCRIPT_S),
        (Progressed(at_ns=0, doing="fit", batch=3), SCRIPT_S),
        (Progressed(at_ns=0, doing="fit", batch=10, batches=10), PREPARING_S),
        (Progressed(at_ns=0, doing="validation", batch=10, batches=10), PREPARING_S),
        (Progressed(at_ns=0, doing=""), PREPARING_S),
    ],
    ids=["its own loop", "within an epoch", "of unknown length", "callbacks", "validation", "after fit"],
)
def test_between_its_steps_a_script_may_do_other_things(progress, seconds):
    assert patience_s(replace(LANE, command="python train.py", progress=progress)) == seconds


def test_a_knob_that_is_asked_for_may_mean_a_compilation():
    assert patience_s(replace(LANE, requested={"xla": KnobRequest(1, True, 0)})) == PREPARING_S


@pytest.mark.parametrize(
    ("heard_s", "expected_s", "since_s"), [(5, 3, 5), (3, 5, 5), (999, 5, 5)], ids=["heard", "turn", "future"]
)
def test_silence_begins_with_the_last_word_or_the_turn(heard_s, expected_s, since_s):
    lane = replace(LANE, heartbeat=Heartbeat(heard_ns=heard_s * SECOND))
    assert unresponsive_since_ns(lane, expected_s * SECOND, 10 * SECOND) == since_s * SECOND

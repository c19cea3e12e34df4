"""The lanes of a race, as real children: one start signal, requests, restarts, and an end that leaves nothing."""

import os
import signal
import threading

import pytest
from support.processes import gone, suspended
from support.waiting import PATIENCE_S, wait_for

from tfmon.lanes import suspend
from tfmon.lanes.suspend import Suspender
from tfmon.model.events import UserRequested
from tfmon.model.lane_events import PAUSED, RACING, READY, SUSPENDED, PhaseEntered
from tfmon.model.lane_state import FAILED
from tfmon.model.race import CONCURRENT, TURNS

pytestmark = pytest.mark.process


def test_a_python_that_does_not_exist_fails_every_lane_and_the_race_is_over(group):
    group.begin(group.plan("cpu", "gpu", python="/nowhere/python"))
    assert group.all_over
    for lane in group.session.snapshot().lanes:
        assert lane.phase == FAILED
        assert lane.trouble.message == "/nowhere/python did not start: No such file or directory"


def test_a_paused_lane_does_not_train_until_it_may_run(group):
    group.begin(group.plan("cpu", "gpu", mode=TURNS))
    group.wait_for_steps("cpu")
    group.pause(["cpu"])
    group.wait_for(PAUSED, "cpu")
    steps = group.lane("cpu").totals.steps
    group.wait_for_steps("gpu:0", 100)
    assert group.lane("cpu").totals.steps == steps
    group.resume(["cpu"])
    group.wait_for_steps("cpu")
    group.wait_for(RACING, "cpu")


def test_a_refused_request_says_why_and_a_restart_takes_the_settings_in_effect(group):
    group.begin(group.plan("cpu"))
    group.wait_for(RACING, "cpu")
    group.set_knob("cpu", "batch_size", 64)
    wait_for(lambda: group.lane("cpu").settings["batch_size"] == 64, what="64")
    group.set_knob("cpu", "batch_size", 13)
    wait_for(lambda: group.lane("cpu").changes.refused, what="the refusal")
    assert group.lane("cpu").changes.refused == "13 brings bad luck"
    assert group.lane("cpu").settings["batch_size"] == 64
    group.restart(["cpu"])
    wait_for(lambda: sum(line.startswith("Assign") for line in group.requests("cpu")) == 2, what="again")
    assert "'batch_size': 64" in [line for line in group.requests("cpu") if line.startswith("Assign")][1]


def test_what_is_meant_for_a_dead_lane_does_not_reach_another_and_it_can_be_started_again(group):
    group.begin(group.plan("cpu", "gpu"))
    group.wait_for_steps("cpu")
    group.wait_for_steps("gpu:0")
    os.kill(group.pid("cpu"), signal.SIGKILL)
    group.wait_for(FAILED, "cpu")
    assert group.lane("cpu").trouble.message == "the lane was ended by SIGKILL"
    before = group.pid("gpu:0")
    group.restart(["gpu:0"])  # Its pipes get the numbers that the pipes of cpu had.
    wait_for(lambda: group.pids().get("gpu:0", before) != before, what="a new child")
    group.wait_for_steps("gpu:0")
    group.set_knob("cpu", "batch_size", 64)
    # It would come before this one, on the same pipe.
    group.set_knob("gpu:0", "prefetch", "off")
    wait_for(lambda: group.lane("gpu:0").settings["prefetch"] == "off", what="its own request")
    assert not [line for line in group.requests("gpu:0") if "batch_size" in line and line.startswith("SetKnob")]
    pid = group.pid("gpu:0")
    group.restart(["cpu"])
    group.wait_for_steps("cpu")
    group.wait_for_steps("gpu:0")
    assert group.pid("gpu:0") == pid


def test_a_lane_that_is_restarted_as_it_gets_ready_is_not_taken_for_ready(group, tmp_path, monkeypatch):
    gate = tmp_path / "gate"
    about_to_hear, go_on, accept = threading.Event(), threading.Event(), group._accept

    def accept_late(process, event):
        """The reader has read that the first child of cpu is ready, and is delayed before it says so."""
        if event.lane == "cpu" and isinstance(event, PhaseEntered) and event.phase == READY:
            about_to_hear.set()
            go_on.wait(PATIENCE_S)
        accept(process, event)

    monkeypatch.setattr(group, "_accept", accept_late)
    group.begin(group.plan("cpu", "gpu", mode=TURNS, environment={"cpu": {"GATE": str(gate)}}))
    group.wait_for(READY, "gpu:0")
    gate.touch()
    assert about_to_hear.wait(PATIENCE_S)
    gate.unlink()
    group.restart(["cpu"])
    wait_for(lambda: "cpu" not in group.pids(), what="the lane is taken from its child")
    go_on.set()
    wait_for(lambda: len(group.requests("cpu")) == 2, what="the new process is told what to train")
    assert group.session.snapshot().race.started_ns is None
    gate.touch()
    group.wait_for_steps("cpu")
    group.wait_for_steps("gpu:0")


def test_another_race_takes_the_place_of_this_one_and_every_request_is_an_event(group):
    heard = []
    group.session.listen(heard.append)
    group.begin(group.plan("cpu", "gpu"))
    group.wait_for_steps("cpu")
    before = list(group.pids().values())
    group.pause(["cpu"])
    group.resume(["cpu"])
    group.restart(["cpu"])
    group.race("another")
    wait_for(lambda: group.session.snapshot().race.scenario == "another", what="the other race")
    assert all(gone(pid) for pid in before)
    group.wait_for_steps("cpu")
    assert list(group.pids()) == ["cpu"]
    told = [(event.action, event.lanes, event.scenario) for event in heard if isinstance(event, UserRequested)]
    lane = [(action, ("cpu",), "") for action in ("pause", "resume", "restart")]
    assert told == [*lane, ("race", (), "another")]


def test_all_lanes_stop_and_go_on_and_no_figure_holds_the_time(group):
    group.begin(group.plan("cpu", "gpu", mode=CONCURRENT))
    group.wait_for_steps("cpu", 100)
    group.wait_for_steps("gpu:0", 100)
    group.suspension.suspend_lanes()
    wait_for(lambda: all(map(suspended, group.pids().values())), what="both are stopped")
    group.suspension.continue_lanes()
    wait_for(lambda: len(group.lane("gpu:0").heartbeat.suspensions) == 1, what="the gap is known")
    group.wait_for_steps("cpu", 100)
    group.wait_for_steps("gpu:0", 100)
    for lane in group.session.snapshot().lanes:
        ((since_ns, until_ns),) = lane.heartbeat.suspensions
        over = [p for p in lane.points if p.at_ns > since_ns and p.at_ns - p.span_ns < until_ns]
        assert not any(point.steady for point in over)
        assert lane.measurements.discarded.get(SUSPENDED, 0) == len(over)
        assert [mark.text.startswith(SUSPENDED) for mark in lane.changes.marks] == [True]


class TestGaps:
    def test_one_that_is_known_is_not_told_again(self):
        told = []
        suspension = Suspender(tuple, lambda *gap: told.append(gap), told.append)
        suspension.record(100, 200, 1.0)
        suspension.record(150, 201, 1.0)
        suspension.record(201, 300, 1.0)
        assert [gap[:2] for gap in told] == [(100, 200), (201, 300)]

    def test_what_is_to_happen_after_a_time_waits_for_the_time_that_was_lost(self, monkeypatch):
        timers, called = [], []
        monkeypatch.setattr(suspend, "call_later", lambda _, seconds, ring, __: timers.append((seconds, ring)))
        suspension = Suspender(tuple, lambda *gap: None, pytest.fail)
        suspension.call_after(5.0, lambda: called.append("before"))
        suspension.record(0, 400_000_000, 0.4)
        suspension.call_after(1.0, lambda: called.append("after"))
        for seconds, ring in timers:  # the first one sets a third
            ring()
            assert called == ["after", "before"][: {5.0: 0, 1.0: 1, 0.4: 2}[seconds]]
        assert called == ["after", "before"]

"""The lanes of a race, as real children: one start signal, requests, restarts, and an end that leaves nothing."""

import os
import signal
import threading

import pytest
from support.lanes import RacingGroup
from support.processes import gone
from support.waiting import PATIENCE_S, wait_for

from tfmon.model.events import UserRequested
from tfmon.model.lane_events import PhaseEntered
from tfmon.model.lane_state import FAILED, PAUSED, RACING, READY
from tfmon.model.race import CONCURRENT, TURNS

pytestmark = pytest.mark.process

BOTH_MODES = pytest.mark.parametrize("mode", [CONCURRENT, TURNS])


def test_a_python_that_does_not_exist_fails_every_lane_and_the_race_is_over(group):
    group.begin(group.plan("cpu", "gpu", python="/nowhere/python"))
    assert group.all_over
    for lane in group.session.snapshot().lanes:
        assert lane.phase == FAILED
        assert lane.trouble.message == "/nowhere/python did not start: No such file or directory"


@BOTH_MODES
def test_a_paused_lane_does_not_train_until_it_may_run(group, mode):
    group.begin(group.plan("cpu", "gpu", mode=mode))
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


def test_a_knob_that_is_not_live_starts_its_lane_anew_with_it(group):
    group.begin(group.plan("cpu", "gpu", mode=TURNS))
    group.wait_for_steps("cpu")
    before = group.pids()
    group.set_knob("cpu", "width", 256)
    wait_for(lambda: group.lane("cpu").settings["width"] == 256, what="width 256")
    group.wait_for_steps("cpu")
    assert group.pid("cpu") != before["cpu"]
    assert group.pid("gpu:0") == before["gpu:0"]
    assert gone(before["cpu"])


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


def test_a_lane_that_is_restarted_as_it_gets_ready_is_not_taken_for_ready(tmp_path, gate):
    group = SlowToHear(tmp_path)
    try:
        group.begin(group.plan("cpu", "gpu", mode=TURNS, environment={"cpu": {"GATE": str(gate)}}))
        group.wait_for(READY, "gpu:0")
        gate.touch()
        assert group.about_to_hear.wait(PATIENCE_S)
        gate.unlink()
        group.restart(["cpu"])
        wait_for(lambda: "cpu" not in group.pids(), what="the lane is taken from its child")
        group.go_on.set()
        wait_for(lambda: len(group.requests("cpu")) == 2, what="the new process is told what to train")
        assert group.session.snapshot().race.started_ns is None
        gate.touch()
        group.wait_for_steps("cpu")
        group.wait_for_steps("gpu:0")
    finally:
        group.go_on.set()
        group.stop()


class SlowToHear(RacingGroup):
    """A group whose reader has read that the first child of cpu is ready, and is delayed before it says so."""

    def __init__(self, logs) -> None:
        self.about_to_hear, self.go_on = threading.Event(), threading.Event()
        super().__init__(logs)

    def _accept(self, process, event) -> None:
        if event.lane == "cpu" and isinstance(event, PhaseEntered) and event.phase == READY:
            self.about_to_hear.set()
            self.go_on.wait(PATIENCE_S)
        super()._accept(process, event)


def test_another_race_takes_the_place_of_this_one(group):
    group.begin(group.plan("cpu", "gpu"))
    group.wait_for_steps("cpu")
    before = list(group.pids().values())
    group.race("another")
    wait_for(lambda: group.session.snapshot().race.scenario == "another", what="the other race")
    assert all(gone(pid) for pid in before)
    group.wait_for_steps("cpu")
    assert list(group.pids()) == ["cpu"]


def test_what_a_user_requests_is_an_event(group):
    heard = []
    group.session.listen(heard.append)
    group.begin(group.plan("cpu"))
    group.wait_for(RACING, "cpu")
    group.pause(["cpu"])
    group.wait_for(PAUSED, "cpu")
    group.resume(["cpu"])
    group.restart(["cpu"])
    group.race("other")
    told = [(event.action, event.lanes, event.scenario) for event in heard if isinstance(event, UserRequested)]
    assert told == [
        ("pause", ("cpu",), ""),
        ("resume", ("cpu",), ""),
        ("restart", ("cpu",), ""),
        ("race", (), "other"),
    ]

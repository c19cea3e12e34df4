"""The spare worker: it loads while nothing is measured, and becomes whatever lane starts next."""

from __future__ import annotations

import os
import platform
import signal
from pathlib import Path

import psutil
import pytest
from support.lanes import RacingGroup
from support.processes import gone, suspended
from support.waiting import wait_for

from tfmon.lanes.plan import lane_environment
from tfmon.model.lane_state import RACING
from tfmon.model.race import CONCURRENT, TURNS
from tfmon.model.spec import LaneSpec

pytestmark = pytest.mark.process


@pytest.fixture
def begin(tmp_path, monkeypatch):
    """Start a group that keeps a spare, and race; a spare takes `loads` seconds of CPU time to load."""
    groups = []

    def start(*lanes: str, loads: float = 0.0, mode: str = TURNS, **plan) -> RacingGroup:
        monkeypatch.setenv("LOADS", str(loads))
        group = RacingGroup(tmp_path, keep_spare=True)
        groups.append(group)
        group.begin(group.plan(*(lanes or ("cpu", "gpu")), mode=mode, **plan))
        group.wait_for(RACING, *(lane.spec.name for lane in group.session.snapshot().lanes))
        return group

    yield start
    for group in groups:
        group.stop()


def spare_of(group: RacingGroup) -> int:
    wait_for(lambda: "" in group.running.processes(), what="a spare")
    return group.running.processes()[""]


def ready(group: RacingGroup) -> None:
    """A race of one lane leaves no time between rounds: pause it until the spare has loaded."""
    names = [lane.spec.name for lane in group.session.snapshot().lanes]
    group.pause(names)
    wait_for(lambda: group.running.children.spare.ready, 150, "the spare is ready")
    group.resume(names)


def test_a_restart_takes_the_spare_and_another_one_is_made(begin):
    group = begin("cpu")
    ready(group)
    pid = spare_of(group)
    group.restart(["cpu"])
    wait_for(lambda: group.running.processes().get("cpu") == pid, what="the spare is the lane")
    group.wait_for(RACING, "cpu")
    lane = group.lane("cpu")
    assert (lane.process.pid, lane.process.versions["python"]) == (pid, platform.python_version())
    assert group._children.find("cpu").output.lane == "cpu"
    wait_for(lambda: spare_of(group) != pid, what="another spare")


def test_the_environment_of_the_lane_is_set_before_it_is_one(begin):
    group = begin("gpu")
    ready(group)
    environment = lane_environment(LaneSpec("gpu:0"), "GPU-42")
    group.running.plan = group.plan("gpu", environment={"gpu:0": environment})
    group.restart(["gpu:0"])
    wait_for(lambda: group.lane("gpu:0").process.gpu_uuids == ("GPU-42",), what="what the lane says CUDA shows it")


def test_once_ready_it_does_not_run(begin):
    group = begin("cpu")
    ready(group)
    pid = spare_of(group)
    wait_for(lambda: suspended(pid), what="it is suspended")
    used = psutil.Process(pid).cpu_times()
    group.wait_for_steps("cpu", 500)
    assert psutil.Process(pid).cpu_times()[:2] == used[:2]


@pytest.mark.parametrize("mode", [TURNS, CONCURRENT])
def test_it_never_runs_while_a_lane_is_measured(begin, mode):
    """What happens while a lane moves: the group tells the spare before it tells the lane."""
    group = begin("cpu", "gpu", loads=1_000, mode=mode, slice_s=0.1)
    pid = spare_of(group)
    if mode == CONCURRENT:
        wait_for(lambda: suspended(pid), what="it is suspended while both train")
        group.pause(["cpu", "gpu:0"])
        wait_for(lambda: not suspended(pid), what="it loads on while both are paused")
        group.resume(["cpu"])
        wait_for(lambda: suspended(pid), what="it is suspended again")
        return
    seen = set()

    def looked() -> bool:
        with group._lock:
            if group._scheduler.busy:
                assert group._children.spare._suspended
                seen.add("measured")
            elif not group._children.spare._suspended:
                seen.add("loaded")
        return seen == {"measured", "loaded"}

    wait_for(looked, what="slices, and time that is loaded between rounds")


def test_a_spare_that_dies_is_done_without(begin):
    group = begin("cpu")
    os.kill(spare_of(group), signal.SIGKILL)
    wait_for(lambda: "" not in group.running.processes(), what="it is gone")
    before = group.pid("cpu")
    group.restart(["cpu"])
    wait_for(lambda: group.running.processes().get("cpu", before) != before, what="a new child")
    group.wait_for(RACING, "cpu")


def test_a_spare_of_another_python_does_not_fit(begin, tmp_path):
    group = begin("cpu")
    ready(group)
    pid = spare_of(group)
    other = tmp_path / "python"
    other.symlink_to(group.running.plan.python)
    group.running.plan = group.plan("cpu", python=str(other))
    group.restart(["cpu"])
    wait_for(lambda: gone(pid), what="the spare is ended")
    group.wait_for(RACING, "cpu")
    assert group.running.processes()["cpu"] != pid


def test_stopping_leaves_none(begin):
    group = begin("cpu", loads=1_000)
    pid = spare_of(group)
    group.stop()
    wait_for(lambda: gone(pid), what="the spare is gone")


@pytest.mark.slow
@pytest.mark.tensorflow
def test_the_real_one_loads_tensorflow_and_touches_no_device(tmp_path):
    from tfmon.lanes.launch import BOOTSTRAP

    group = RacingGroup(tmp_path, BOOTSTRAP, keep_spare=True)
    try:
        group.running.plan = group.plan("cpu")
        with group._lock:
            # One that loads at the lowest priority would not come to it beside other programs.
            group._children.spare.prepare(group.running.plan.python, quiet=False, once=True)
        ready(group)
        child = group._children.spare.process
        maps = Path(f"/proc/{child.pid}/maps")
        if maps.exists():
            assert "libtensorflow" in maps.read_text()
            assert "libcuda.so" not in maps.read_text()
        assert not any("cuInit" in line for line in child.output.tail())
    finally:
        group.stop()

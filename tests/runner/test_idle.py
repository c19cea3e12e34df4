"""Bare `gpu`, the idlest one: planned against samples, and against the fake driver."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.eight_gpus import GPUS, samples, script
from support.nvml import build_fake_nvml, driver, load_driver
from support.waiting import PATIENCE_S

from tfmon.errors import DeviceAbsentError
from tfmon.model.spec import LaneSpec
from tfmon.probes.choice import look
from tfmon.probes.gpus import GpuSearch
from tfmon.runner.devices import Idle
from tfmon.runner.planner import RaceOptions, plan_race

from .test_planner import INFO

__all__ = ["build_fake_nvml", "driver", "load_driver"]

EIGHT = GpuSearch(gpus=GPUS)


class Machine:
    """Eight GPUs."""

    def __init__(self) -> None:
        self.looks = 0
        self.samples = samples(1)
        self.idle = Idle(self.look)

    def look(self, host, gpus):
        self.looks += 1
        wanted = {gpu.uuid for gpu in gpus}
        return [sample for sample in self.samples if sample.key in wanted]

    def plan(self, *lanes: str, gpus=GPUS):
        options = RaceOptions(lanes=lanes)
        return plan_race(INFO, options, lambda _: GpuSearch(gpus=gpus), idle=self.idle)[0]


def test_a_lane_that_names_no_gpu_gets_the_idlest_and_says_why_and_one_that_names_the_first_gets_it():
    plan = Machine().plan("gpu", "gpu:0")
    assert [lane.spec.device for lane in plan.lanes] == ["gpu:1", "gpu:0"]
    assert plan.lanes[0].environment["CUDA_VISIBLE_DEVICES"] == GPUS[1].uuid
    assert [lane.spec.chosen for lane in plan.lanes] == [
        "the idlest of 8 GPUs: no process, 0 % busy, 80 GiB free", "",
    ]  # fmt: skip


def test_several_gpus_of_no_name_are_the_idlest_ones_and_all_of_them_need_no_look():
    machine = Machine()
    (lane,) = machine.plan("2xgpu").lanes
    assert lane.spec.device == "gpu:1+6"
    assert lane.environment["CUDA_VISIBLE_DEVICES"] == f"{GPUS[1].uuid},{GPUS[6].uuid}"
    assert lane.spec.chosen.startswith("the 2 idlest of 8 GPUs: gpu:1 no process, 0 % busy, 80 GiB free; gpu:6 ")
    assert machine.looks == 1
    everyone = machine.plan("gpu:all", "8xgpu")
    assert [lane.spec.device for lane in everyone.lanes] == ["gpu:0+1+2+3+4+5+6+7"] * 2
    assert [lane.spec.chosen for lane in everyone.lanes] == ["", ""] and machine.looks == 1


def test_the_idlest_one_is_among_the_idlest_two():
    plan = Machine().plan("gpu", "2xgpu", "3xgpu")
    assert [lane.spec.device for lane in plan.lanes] == ["gpu:1", "gpu:1+6", "gpu:1+4+6"]


def test_a_gpu_that_is_not_there_is_refused():
    with pytest.raises(DeviceAbsentError, match="gpu:9 of gpu:0"):
        Machine().plan("gpu:0+9")


def test_the_default_lanes_are_the_cpu_and_the_idlest_gpu():
    plan = Machine().plan()
    assert [lane.spec.name for lane in plan.lanes] == ["cpu", "gpu:1"]


def test_all_lanes_of_a_run_get_the_same_gpu_also_when_it_has_become_busy():
    machine = Machine()
    first = machine.plan("gpu", "gpu,batch_size=64")
    machine.samples = [replace(one, busy_pct=90.0) for one in machine.samples]
    again = machine.plan("gpu")
    assert {lane.spec.device for lane in (*first.lanes, *again.lanes)} == {"gpu:1"}
    assert machine.looks == 1


def test_without_a_choice_nothing_is_looked_at():
    machine = Machine()
    (lane,) = machine.plan("gpu", gpus=GPUS[:1]).lanes
    assert (lane.spec.device, lane.spec.chosen, machine.looks) == ("gpu:0", "", 0)


def test_the_idlest_of_each_host_is_chosen_there():
    machine = Machine()
    specs = [LaneSpec("gpu", host="a"), LaneSpec("gpu", host="b")]
    chosen = machine.idle.choose(specs, lambda _: EIGHT)
    assert [spec.place for spec, _ in chosen] == ["a/gpu:1", "b/gpu:1"] and machine.looks == 2


@pytest.mark.process
def test_a_look_through_the_driver_has_the_load_of_the_last_seconds_and_who_is_there(driver):
    driver.play(script())
    found = look(GPUS, timeout_s=PATIENCE_S)
    assert [sample.busy_pct for sample in found] == [97, 0, 88, 0, 0, 41, 3, 100]
    assert found[0].busy_by_pid == {7001: 61, 7002: 36}
    assert found[0].busy_source == "samples"
    plan = plan_race(
        INFO,
        RaceOptions(lanes=("gpu",)),
        lambda _: EIGHT,
        idle=Idle(lambda _, gpus: look(gpus, timeout_s=PATIENCE_S)),
    )[0]
    assert plan.lanes[0].spec.device == "gpu:1"


@pytest.mark.process
def test_a_driver_that_hangs_leaves_the_first_gpu_with_the_reason(driver):
    driver.play(script() + "hang DeviceGetMemoryInfo_v2\n")
    found = look(GPUS[:2], timeout_s=0.2)
    driver.play(script())
    assert [sample.used_bytes.reason for sample in found] == ["the driver does not answer"] * 2


def test_one_that_was_chosen_and_one_that_was_named_are_told_apart_by_numbers():
    machine = Machine()
    plan = machine.plan("gpu", "gpu:1")
    assert [lane.spec.name for lane in plan.lanes] == ["gpu:1 #1", "gpu:1 #2"]

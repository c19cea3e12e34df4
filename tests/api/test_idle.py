"""Bare `gpu`, and waiting until one is free: planned against samples, and against the fake driver."""

import pytest
from support.eight_gpus import GPUS, samples, script
from support.waiting import PATIENCE_S

from tfmon.api.devices import Idle
from tfmon.api.options import RaceOptions
from tfmon.api.planner import plan_race
from tfmon.errors import EXIT_BUSY, GpusBusyError
from tfmon.probes.find_gpus import GpuSearch, look

from .test_planner import INFO


class Machine:
    def __init__(self, **more) -> None:
        self.now_s, self.looks, self.told = 0.0, 0, []
        self.samples = samples(1)
        self.idle = Idle(self.look, clock_s=lambda: self.now_s, sleep=self.sleep, tell=self.told.append, **more)

    def look(self, host, gpus):
        self.looks += 1
        wanted = {gpu.uuid for gpu in gpus}
        return [sample for sample in self.samples if sample.key in wanted]

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def plan(self, *lanes: str, gpus=GPUS):
        options = RaceOptions(lanes=lanes)
        return plan_race(INFO, options, lambda _: GpuSearch(gpus=gpus), idle=self.idle)[0]


def test_a_lane_that_names_no_gpu_gets_the_idlest_and_says_why_and_one_that_names_the_first_gets_it():
    plan = Machine().plan("gpu", "gpu:0")
    assert [lane.spec.device for lane in plan.lanes] == ["gpu:1", "gpu:0"]
    assert plan.lanes[0].environment["CUDA_VISIBLE_DEVICES"] == GPUS[1].uuid
    why = "the idlest of 8 GPUs: no process, 0 % busy, 80 GiB free"
    assert [lane.spec.chosen for lane in plan.lanes] == [why, ""]


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


def test_waiting_ends_when_a_gpu_is_free_and_says_what_it_waits_for():
    machine = Machine(wait_s=600.0)
    busy, free = samples(1), samples(1)
    machine.samples = [one for one in busy if one.index not in (1, 6)]
    sleep = machine.sleep

    def later(seconds: float) -> None:
        sleep(seconds)
        if machine.now_s > 12:
            machine.samples = free

    machine.idle.sleep = later
    (lane,) = machine.plan("gpu").lanes
    assert lane.spec.device == "gpu:1" and 12 < machine.now_s < 20
    busiest = "the idlest of 8, gpu:4: 1 process of dmitri, 0 % busy, 78 GiB free"
    assert machine.told[0] == f"waiting for a free GPU (10:00 left, Ctrl-C leaves): {busiest}"
    assert machine.told[-1] == ""


@pytest.mark.parametrize(
    ("lane", "said"),
    [
        ("gpu:2", "no GPU was free within 1 min: gpu:2: 1 process of bob, 88 % busy"),
        ("gpu:1+2", "within 1 min: gpu:2: 1 process of bob, 88 % busy"),
        ("4xgpu", "within 1 min: 2 of 8 GPUs free, and 4 are needed "),
    ],
)
def test_named_gpus_are_waited_for_and_after_the_minutes_one_line_says_who_has_them(lane, said):
    machine = Machine(wait_s=60.0)
    with pytest.raises(GpusBusyError, match=said) as told:
        machine.plan("cpu", lane)
    assert machine.now_s == 60.0 and told.value.exit_code == EXIT_BUSY
    assert "--wait-idle" in told.value.hint
    machine.plan("cpu", "gpu:1")  # that one is free
    assert machine.now_s == 60.0


@pytest.mark.process
def test_a_look_has_the_load_of_the_last_seconds_or_the_reason_why_a_driver_that_hangs_has_none(driver):
    driver.play(script())
    found = look(GPUS, timeout_s=PATIENCE_S)
    assert [sample.load.busy_pct for sample in found] == [97, 0, 88, 0, 0, 41, 3, 100]
    assert (found[0].processes.busy_by_pid, found[0].load.source) == ({7001: 61, 7002: 36}, "samples")
    driver.play(script() + "hang DeviceGetMemoryInfo_v2\n")
    found = look(GPUS[:2], timeout_s=0.2)
    driver.play(script())
    assert [sample.memory.used_bytes.reason for sample in found] == ["the driver does not answer"] * 2

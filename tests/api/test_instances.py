"""Instances of GPUs that are split up (MIG) as devices of lanes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.events import gpu_sample, lane

from tfmon.errors import DeviceAbsentError, UsageError
from tfmon.model.hosts import has_device
from tfmon.model.spec import LaneSpec, SpecError, name_lanes, parse_lane
from tfmon.probes.base import Gpu
from tfmon.probes.gpus import GpuSearch

from .test_planner import FIRST, names, plan

WHOLE = Gpu(0, "GPU-aaaa", "NVIDIA H100", physical_gpu=0, instances=())
ONE, TWO, THREE = (
    Gpu(0, f"MIG-{begin}-1111-2222-3333-444444444444", f"MIG {size}", physical_gpu=0, part_of="GPU-aaaa")
    for begin, size in (("11111111", "1g.10gb"), ("1111ffff", "2g.20gb"), ("11111111-9", "3g.40gb"))
)
SPLIT = GpuSearch(gpus=(WHOLE,), instances=(ONE, TWO))


def test_a_lane_trains_on_the_instance_whose_uuid_begins_so():
    race = plan("MIG-1111F", "mig-11111111-1111,batch_size=64", found=SPLIT)
    assert names(race) == ["MIG-1111ffff", "MIG-11111111"]
    assert [one.spec.kind for one in race.lanes] == ["gpu", "gpu"]
    assert [one.environment["CUDA_VISIBLE_DEVICES"] for one in race.lanes] == [TWO.uuid, ONE.uuid]
    assert race.lanes[1].settings["batch_size"] == 64


def test_two_lanes_on_one_instance_are_told_apart_by_their_settings_however_it_is_written():
    race = plan("MIG-11111111,prefetch=1", f"{ONE.uuid},prefetch=2", found=SPLIT)
    assert names(race) == ["MIG-11111111 prefetch=1", "MIG-11111111 prefetch=2"]


def test_instances_that_begin_alike_have_longer_names():
    found = GpuSearch(gpus=(WHOLE,), instances=(ONE, THREE))
    race = plan(ONE.uuid, "MIG-11111111-9", found=found)
    assert [lane.spec.device for lane in race.lanes] == ["MIG-11111111-1", "MIG-11111111-9"]


@pytest.mark.parametrize(
    ("device", "found", "error", "words"),
    [
        ("MIG-2", SPLIT, DeviceAbsentError, "--lane MIG-11111111 (MIG 1g.10gb)"),
        ("MIG-1111", SPLIT, UsageError, "--lane MIG-1111ffff (MIG 2g.20gb)"),
        ("MIG-1111", GpuSearch(reason="no driver", hint="install it"), DeviceAbsentError, "install it"),
        ("MIG-1111", GpuSearch(gpus=(FIRST,)), DeviceAbsentError, "tfmon doctor"),
        ("gpu:0", SPLIT, DeviceAbsentError, "name an instance: --lane MIG-11111111"),
        # CUDA_VISIBLE_DEVICES names the instances, so that no GPU is visible as a whole
        ("gpu:0", GpuSearch(instances=(ONE, TWO)), DeviceAbsentError, "name an instance: --lane MIG-11111111"),
    ],
)
def test_what_no_lane_can_train_on_says_what_can_be_named(device, found, error, words):
    with pytest.raises(error) as caught:
        plan(device, found=found)
    assert device in str(caught.value)
    assert words in caught.value.hint


def test_the_default_lane_takes_a_whole_gpu_first():
    whole = replace(FIRST, index=1)
    assert names(plan(found=GpuSearch(gpus=(WHOLE, whole), instances=(ONE,)))) == ["cpu", "gpu:1"]
    assert names(plan(found=SPLIT)) == ["cpu", "MIG-11111111"]


def test_what_is_no_uuid_is_refused():
    for text in ("MIG-", "MIG-xyz", "MIG-GPU-1", "MIG-1:0"):
        with pytest.raises(SpecError, match="there is no device"):
            parse_lane(text, ())


def test_its_readings_are_those_of_the_instance_before_cuda_has_told_which_it_is():
    (spec,) = name_lanes([LaneSpec("MIG-11111111")])
    state = lane(spec.device)
    assert has_device(state, gpu_sample(ONE.uuid, kind="mig", part_of="GPU-aaaa"))
    assert not has_device(state, gpu_sample(TWO.uuid, kind="mig", part_of="GPU-aaaa"))
    assert not has_device(state, gpu_sample("GPU-aaaa"))

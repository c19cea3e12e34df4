"""From the words for devices to the GPUs of a lane, whole ones and instances of GPUs that are split up (MIG)."""

from dataclasses import replace
from functools import partial

import pytest

from tfmon.errors import DeviceAbsentError, UsageError
from tfmon.model.knobs import COMMON
from tfmon.probes.base import Gpu
from tfmon.probes.find_gpus import GpuSearch

from . import test_planner
from .test_planner import INFO

EIGHT = tuple(Gpu(index, f"GPU-{index}", "L4", physical_gpu=index) for index in range(8))
THREE = GpuSearch(gpus=EIGHT[:3])
plan = partial(test_planner.plan, found=THREE)


@pytest.mark.parametrize(
    ("text", "device", "visible"),
    [
        ("gpu:2+0", "gpu:2+0", "GPU-2,GPU-0"),
        ("gpu:all", "gpu:0+1+2", "GPU-0,GPU-1,GPU-2"),
        ("2xgpu", "gpu:0+1", "GPU-0,GPU-1"),
        ("2xcpu", "2xcpu", "-1"),
    ],
)
def test_a_lane_sees_the_gpus_that_it_names_in_their_order(text, device, visible):
    (only,) = plan(text).lanes
    assert (only.spec.device, only.spec.name) == (device, device)
    assert only.environment["CUDA_VISIBLE_DEVICES"] == visible
    assert only.environment.get("TF_FORCE_GPU_ALLOW_GROWTH") == ("true" if only.spec.kind == "gpu" else None)


@pytest.mark.parametrize(
    ("text", "count", "said", "hint"),
    [
        ("gpu:0+9", 3, "gpu:9 of gpu:0+9 is not there", "this machine has gpu:0 (L4), gpu:1 (L4), gpu:2 (L4)"),
        ("gpu:8+9", 2, "gpu:8 and gpu:9 of gpu:8+9 are not there", "this machine has gpu:0 (L4), gpu:1 (L4)"),
        ("9xgpu", 8, "9xgpu is not there: there are 8 GPUs", "this machine has 8 GPUs from gpu:0 on (L4)"),
        ("3xgpu", 1, "3xgpu is not there: there is one GPU", "this machine has gpu:0 (L4)"),
        ("gpu", 0, "gpu is not there: no driver", "install it"),
    ],
)
def test_gpus_that_are_not_there_are_named_with_those_that_are(text, count, said, hint):
    with pytest.raises(DeviceAbsentError) as caught:
        plan(text, found=GpuSearch(EIGHT[:count], reason="no driver", hint="install it"))
    assert (caught.value.message, caught.value.hint) == (said, hint)


def test_a_split_gpu_is_none_of_several():
    part = Gpu(0, "MIG-11111111-2222", "L4 MIG 1g", physical_gpu=0, part_of="GPU-0")
    found = GpuSearch(gpus=(replace(THREE.gpus[0], instances=(part,)), *THREE.gpus[1:]), instances=(part,))
    assert [plan(text, found=found).lanes[0].spec.device for text in ("gpu:all", "2xgpu")] == ["gpu:1+2"] * 2
    with pytest.raises(DeviceAbsentError, match=r"gpu:0 \(L4\) is split up \(MIG\)"):
        plan("gpu:0+1", found=found)
    with pytest.raises(DeviceAbsentError, match="there are 2 GPUs"):
        plan("3xgpu", found=found)
    only = replace(found, gpus=found.gpus[:1])
    with pytest.raises(DeviceAbsentError, match=r"every GPU is split up \(MIG\)") as caught:
        plan("gpu:all", found=only)
    assert "--lane MIG-11111111" in caught.value.hint


def test_the_scope_of_the_batch_is_a_knob_of_races_with_a_lane_on_several_devices():
    race = plan("cpu", "2xcpu,batch_scope=per-replica", sets=("batch_size=50",))
    assert [knob.name for knob in race.race.knobs][:3] == ["batch_size", "batch_scope", "prefetch"]
    assert [lane.settings["batch_scope"] for lane in race.lanes] == ["global", "per-replica"]
    assert "batch_scope" not in plan("cpu", "gpu:0").lanes[0].settings
    with pytest.raises(UsageError, match="no knob 'batch_scope'") as caught:
        plan("cpu", sets=("batch_scope=global",))
    assert caught.value.hint.startswith("batch_scope is for races with a lane on several devices")
    without = replace(INFO, knobs=tuple(knob for knob in COMMON if knob.name != "batch_size"))
    assert "batch_scope" not in plan("2xcpu", info=without).lanes[0].settings


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("batch_size=1", "2xcpu: batch_size=1 is too small for 2 devices; it must be at least 2"),
        ("xla=on", "2xcpu: xla=on compiles a step for one device"),
        ("mixed_precision=float16", "2xcpu: mixed_precision=float16 spoils the weights"),
        ("batch_scope=per-replica,batch_size=600", "batch_size=600 is larger than the data of net; .* most 500"),
    ],
)
def test_settings_that_several_devices_cannot_train_under_are_refused_before_the_race(settings, said):
    with pytest.raises(UsageError, match=said):
        plan(f"2xcpu,{settings}")


WHOLE = Gpu(0, "GPU-aaaa", "NVIDIA H100", physical_gpu=0, instances=())
PART, OTHER, LONGER = (
    Gpu(0, f"MIG-{begin}-1111-2222-3333-444444444444", f"MIG {size}", physical_gpu=0, part_of="GPU-aaaa")
    for begin, size in (("11111111", "1g.10gb"), ("1111ffff", "2g.20gb"), ("11111111-9", "3g.40gb"))
)
H200 = Gpu(index=0, uuid="GPU-bbbb", name="NVIDIA H200", physical_gpu=0)
SPLIT = GpuSearch(gpus=(WHOLE,), instances=(PART, OTHER))


def test_instances_that_begin_alike_have_longer_names():
    found = GpuSearch(gpus=(WHOLE,), instances=(PART, LONGER))
    race = plan(PART.uuid, "MIG-11111111-9", found=found)
    assert [lane.spec.device for lane in race.lanes] == ["MIG-11111111-1", "MIG-11111111-9"]


@pytest.mark.parametrize(
    ("device", "found", "error", "words"),
    [
        ("MIG-2", SPLIT, DeviceAbsentError, "--lane MIG-11111111 (MIG 1g.10gb)"),
        ("MIG-1111", SPLIT, UsageError, "--lane MIG-1111ffff (MIG 2g.20gb)"),
        ("MIG-1111", GpuSearch(reason="no driver", hint="install it"), DeviceAbsentError, "install it"),
        ("MIG-1111", GpuSearch(gpus=(H200,)), DeviceAbsentError, "tfmon doctor"),
        ("gpu:0", SPLIT, DeviceAbsentError, "name an instance: --lane MIG-11111111"),
        # CUDA_VISIBLE_DEVICES names the instances, so that no GPU is visible as a whole
        ("gpu:0", GpuSearch(instances=(PART, OTHER)), DeviceAbsentError, "name an instance: --lane MIG-11111111"),
    ],
)
def test_what_no_lane_can_train_on_says_what_can_be_named(device, found, error, words):
    with pytest.raises(error) as caught:
        plan(device, found=found)
    assert device in str(caught.value)
    assert words in caught.value.hint

"""From the words for devices to the GPUs of a lane."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tfmon.api.planner import RaceOptions, plan_race
from tfmon.catalog import ScenarioInfo
from tfmon.errors import DeviceAbsentError, UsageError
from tfmon.model.knobs import COMMON
from tfmon.probes.base import Gpu
from tfmon.probes.gpus import GpuSearch

INFO = ScenarioInfo("net", Path("net.py"), "file", "A net", knobs=COMMON, examples=100)
THREE = GpuSearch(gpus=tuple(Gpu(index, f"GPU-{index}", "L4", physical_gpu=index) for index in range(3)))
ONE = GpuSearch(gpus=THREE.gpus[:1])


def plan(*lanes: str, sets: tuple[str, ...] = (), found: GpuSearch = THREE, info: ScenarioInfo = INFO):
    return plan_race(info, RaceOptions(lanes=lanes, settings=sets), lambda _host: found)[0]


@pytest.mark.parametrize(
    ("text", "device", "visible"),
    [
        ("gpu:2+0", "gpu:2+0", "GPU-2,GPU-0"),
        ("gpu:all", "gpu:0+1+2", "GPU-0,GPU-1,GPU-2"),
        ("2xgpu", "gpu:0+1", "GPU-0,GPU-1"),
        ("1xgpu", "gpu:0", "GPU-0"),
        ("2xcpu", "2xcpu", "-1"),
        ("1xcpu", "cpu", "-1"),
    ],
)
def test_a_lane_sees_the_gpus_that_it_names_in_their_order(text, device, visible):
    (lane,) = plan(text).lanes
    assert (lane.spec.device, lane.spec.name) == (device, device)
    assert lane.environment["CUDA_VISIBLE_DEVICES"] == visible


def test_all_gpus_of_a_machine_with_one_are_that_one():
    (lane,) = plan("gpu:all", found=ONE).lanes
    assert (lane.spec.device, lane.spec.devices) == ("gpu:0", 1)


def test_the_gpus_of_a_host_are_those_that_it_has():
    searched = {"": ONE, "gpu2": THREE}
    race, _ = plan_race(INFO, RaceOptions(lanes=("gpu", "gpu2/2xgpu")), searched.__getitem__)
    assert [lane.spec.place for lane in race.lanes] == ["gpu:0", "gpu2/gpu:0+1"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpu:0+9", "gpu:9 of gpu:0+9 is not there"),
        ("gpu:8+9", "gpu:8 and gpu:9 of gpu:8+9 are not there"),
        ("gpu:5", "gpu:5 is not there"),
        ("4xgpu", "4xgpu is not there: there are 3 GPUs"),
    ],
)
def test_gpus_that_are_not_there_are_named_with_those_that_are(text, said):
    with pytest.raises(DeviceAbsentError) as caught:
        plan(text)
    assert (caught.value.message, caught.value.hint) == (
        said, "this machine has gpu:0 (L4), gpu:1 (L4), gpu:2 (L4)",
    )  # fmt: skip
    with pytest.raises(DeviceAbsentError) as caught:
        plan("9xgpu", found=GpuSearch(gpus=tuple(Gpu(index, f"GPU-{index}", "L4", index) for index in range(8))))
    assert caught.value.hint == "this machine has 8 GPUs from gpu:0 on (L4)"
    with pytest.raises(DeviceAbsentError, match="there is one GPU"):
        plan("3xgpu", found=ONE)


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


def test_several_amd_gpus_are_shown_by_their_numbers():
    amd = tuple(Gpu(index, f"AMD-{index}", "MI210", physical_gpu=index + 2) for index in range(2))
    (lane,) = plan("gpu:all", found=GpuSearch(gpus=amd)).lanes
    assert (lane.environment["HIP_VISIBLE_DEVICES"], lane.environment["CUDA_VISIBLE_DEVICES"]) == ("2,3", None)


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
    ("sets", "said"),
    [
        (("batch_size=1",), "2xcpu: batch_size=1 is too small for 2 devices; it must be at least 2"),
        (("xla=on",), "2xcpu: xla=on compiles a step for one device"),
        (("mixed_precision=float16",), "2xcpu: mixed_precision=float16 spoils the weights"),
        (
            ("batch_size=60", "batch_scope=per-replica"),
            "batch_size=60 is larger than the data of net; it can be at most 50",
        ),
    ],
)
def test_settings_that_several_devices_cannot_train_under_are_refused_before_the_race(sets, said):
    with pytest.raises(UsageError) as caught:
        plan("2xcpu", sets=sets)
    assert caught.value.message.startswith(said)

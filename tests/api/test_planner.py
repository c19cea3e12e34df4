"""From the words of the command line to the lanes that are started."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tfmon.api.planner import MOST_LANES, RaceOptions, find_python, plan_race
from tfmon.catalog import ScenarioInfo, find_scenario
from tfmon.errors import EXIT_DEVICE_ABSENT, EXIT_USAGE, DeviceAbsentError, UsageError
from tfmon.lanes.plan import RacePlan
from tfmon.model.knobs import COMMON, Knob
from tfmon.model.readings import ALWAYS_VALID, FIXED, SPENDING
from tfmon.probes.base import Gpu
from tfmon.probes.gpus import GpuSearch

FIRST = Gpu(index=0, uuid="GPU-aaaa", name="NVIDIA H200", physical_gpu=0)
SECOND = Gpu(index=1, uuid="GPU-bbbb", name="NVIDIA L4", physical_gpu=3)
TWO_GPUS = GpuSearch(gpus=(FIRST, SECOND))
NO_GPU = GpuSearch(reason="the NVIDIA driver is not installed", hint="install it")

INFO = ScenarioInfo(
    name="net",
    path=Path("/scenarios/net.py"),
    origin="file",
    title="A net",
    doc="",
    knobs=(*COMMON, Knob("width", default=128, help="Units.", low=1, high=4096)),
    contrast=("prefetch=off", "prefetch=auto"),
    examples=1_000,
)


def plan(
    *lanes: str, sets: tuple[str, ...] = (), found: GpuSearch = NO_GPU, info: ScenarioInfo = INFO, **more
) -> RacePlan:
    return plan_race(info, RaceOptions(lanes=lanes, settings=sets, **more), lambda _: found)[0]


def names(race: RacePlan) -> list[str]:
    return [lane.spec.name for lane in race.lanes]


def values(race: RacePlan, knob: str) -> list[object]:
    return [lane.settings[knob] for lane in race.lanes]


def never(_: str) -> GpuSearch:
    raise AssertionError("nobody asked for a GPU")


# ------------------------------------------------------------ the default lanes


def test_the_cpu_races_the_first_gpu_or_else_two_variants_race_on_the_cpu_and_the_reason_is_told():
    race, no_gpu = plan_race(INFO, RaceOptions(), lambda _: TWO_GPUS)
    assert names(race) == ["cpu", "gpu:0"]
    assert no_gpu == ""
    race, no_gpu = plan_race(INFO, RaceOptions(), lambda _: NO_GPU)
    assert names(race) == ["cpu prefetch=off", "cpu prefetch=auto"]
    assert no_gpu == "the NVIDIA driver is not installed"


def test_a_contrast_may_set_several_knobs_but_none_that_is_set_for_all_lanes():
    race = plan(info=replace(INFO, contrast=("width=8,prefetch=off", "width=16,prefetch=2")))
    assert values(race, "width") == [8, 16]
    assert values(race, "prefetch") == ["off", 2]
    race = plan(sets=("width=64",), info=replace(INFO, contrast=("width=8", "width=16")))
    assert set(values(race, "width")) == {64}
    assert names(race) == ["cpu prefetch=off", "cpu prefetch=auto"]
    assert names(plan(sets=("prefetch=1",))) == ["cpu"]


def test_a_contrast_that_cannot_be_is_blamed_on_the_file():
    with pytest.raises(UsageError, match=r"the contrast of net\.py: .*depth"):
        plan(info=replace(INFO, contrast=("depth=1", "depth=2")))


# ------------------------------------------------------------ lanes that were requested


def test_cpu_lanes_need_no_search_for_gpus():
    race, no_gpu = plan_race(INFO, RaceOptions(lanes=("cpu", "cpu")), never)
    assert names(race) == ["cpu #1", "cpu #2"]
    assert no_gpu == ""


def test_hosts_are_connected_before_their_gpus_are_looked_for_and_each_has_its_own():
    asked = []

    def search(host: str) -> GpuSearch:
        asked.append(host)
        return TWO_GPUS if host == "gpu2" else NO_GPU

    lanes = ("cpu", "gpu2/gpu:1", "gpu3/cpu", "gpu2/cpu")
    connect = lambda specs: asked.append([spec.host for spec in specs])  # noqa: E731
    race, no_gpu = plan_race(INFO, RaceOptions(lanes=lanes), search, connect)
    assert asked[0] == ["gpu2", "gpu3", "gpu2"] and set(asked[1:]) == {"gpu2"}
    assert names(race) == ["cpu", "gpu2/gpu:1", "gpu3/cpu", "gpu2/cpu"]
    assert race.lanes[1].environment["CUDA_VISIBLE_DEVICES"] == TWO_GPUS.gpus[1].uuid
    assert no_gpu == ""
    with pytest.raises(DeviceAbsentError) as absent:
        plan_race(INFO, RaceOptions(lanes=("gpu2/gpu:7",)), search)
    assert absent.value.message == "gpu2/gpu:7 is not there"
    assert absent.value.hint.startswith("gpu2 has gpu:0")
    with pytest.raises(DeviceAbsentError, match="gpu3/gpu is not there: the NVIDIA driver"):
        plan_race(INFO, RaceOptions(lanes=("gpu3/gpu",)), search)


def test_a_setting_of_a_lane_goes_before_one_for_all_lanes_and_that_before_the_default():
    race = plan("cpu,batch_size=8", "cpu", sets=("batch_size=16", "width=64"))
    assert values(race, "batch_size") == [8, 16]
    assert values(race, "width") == [64, 64]
    assert values(race, "prefetch") == ["auto", "auto"]


def test_what_the_command_line_says_is_in_the_plan():
    race = plan("cpu", steps=50, seconds=2.5, python=Path("/usr/bin/python3"))
    assert (race.steps, race.seconds, race.python) == (50, 2.5, Path("/usr/bin/python3"))
    assert (race.race.scenario, race.race.title, race.scenario) == ("net", "A net", INFO.path)
    assert race.race.knobs == INFO.knobs


@pytest.mark.parametrize(
    ("lane", "said"),
    [
        ("tpu", "no device 'tpu'"),
        ("cpu:1", "cpu, gpu or gpu:N"),
        ("cpu,depth=3", "no knob 'depth'.*batch_size, prefetch, .* or width"),
        ("cpu,prefetch=3.5", "prefetch takes"),
        ("cpu,batch_size=0", "batch_size takes a whole number from 1"),
        ("cpu,batch_size=1e3", "batch_size takes a whole number from 1"),
        ("cpu,width=5000", "width takes a whole number from 1 to 4096"),
        ("cpu,batch_size", "not KNOB=VALUE"),
    ],
)
def test_a_lane_that_cannot_be_is_refused_with_what_is_allowed(lane, said):
    with pytest.raises(UsageError, match=said) as caught:
        plan(lane)
    assert caught.value.exit_code == EXIT_USAGE
    assert caught.value.hint
    device, _, setting = lane.partition(",")
    if setting:
        with pytest.raises(UsageError, match=said) as caught:
            plan(device, sets=(setting,))
        assert caught.value.hint == "tfmon show net lists the knobs"


def test_a_batch_may_be_as_large_as_the_data_and_no_larger():
    assert values(plan("cpu,batch_size=1000"), "batch_size") == [1_000]
    with pytest.raises(UsageError, match="batch_size=1001 is larger than the data of net; it can be at most 1000"):
        plan("cpu,batch_size=1001")
    with pytest.raises(UsageError, match="batch_size=2000 is larger"):
        plan(sets=("batch_size=2000",))
    # Where the file does not say how many examples there are, the trainer finds out.
    assert values(plan("cpu,batch_size=100000", info=replace(INFO, examples=None)), "batch_size") == [100_000]


def test_too_many_lanes_are_refused():
    assert len(plan(*["cpu"] * MOST_LANES).lanes) == MOST_LANES
    with pytest.raises(UsageError, match=f"{MOST_LANES + 1} lanes are too many"):
        plan(*["cpu"] * (MOST_LANES + 1))


@pytest.mark.parametrize("value", ["inf", "1e999"])
@pytest.mark.parametrize("where", ["lane", "set", "default"])
def test_a_number_that_the_wire_and_json_cannot_carry_is_refused(value, where):
    rate = Knob("rate", default=float(value) if where == "default" else 0.5, help="A rate.", low=0.0)
    info = replace(INFO, knobs=(*INFO.knobs, rate))
    lane = f"cpu,rate={value}" if where == "lane" else "cpu"
    with pytest.raises(UsageError, match="rate=inf is not possible"):
        plan(lane, sets=(f"rate={value}",) if where == "set" else (), info=info)


# ------------------------------------------------------------ devices


def test_a_gpu_that_is_not_there_is_refused_with_the_reason_or_the_ones_that_are():
    with pytest.raises(DeviceAbsentError) as caught:
        plan("cpu", "gpu")
    assert caught.value.message == "gpu is not there: the NVIDIA driver is not installed"
    assert caught.value.hint == "install it"
    assert caught.value.exit_code == EXIT_DEVICE_ABSENT
    with pytest.raises(DeviceAbsentError, match="gpu:2 is not there") as caught:
        plan("gpu:2", found=TWO_GPUS)
    assert caught.value.hint == "this machine has gpu:0 (NVIDIA H200), gpu:1 (NVIDIA L4)"


def test_a_lane_sees_its_gpu_alone_and_does_not_take_all_its_memory_and_a_cpu_lane_sees_none():
    for lane, gpu in zip(plan("gpu:0", "gpu:1", found=TWO_GPUS).lanes, TWO_GPUS.gpus, strict=True):
        assert lane.environment["CUDA_VISIBLE_DEVICES"] == gpu.uuid
        assert lane.environment["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
    cpu, _ = plan(found=TWO_GPUS).lanes
    assert cpu.environment["CUDA_VISIBLE_DEVICES"] == "-1"


# ------------------------------------------------------------ the interpreter


def test_a_python_is_found_by_path_or_as_a_command(monkeypatch):
    assert find_python(sys.executable) == Path(sys.executable)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert find_python(Path(sys.executable).name) == Path(sys.executable)


def test_a_link_is_not_followed_because_an_environment_is_found_by_its_place(tmp_path, monkeypatch):
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_python(str(link)) == find_python("~/python") == link


@pytest.mark.parametrize("make", ["nothing", "a file", "a folder"])
def test_what_cannot_be_run_is_refused(make, tmp_path):
    path = tmp_path / "python"
    if make == "a file":
        path.write_text("print()\n")
    if make == "a folder":
        path.mkdir()
    with pytest.raises(UsageError, match="is not a program that can be run"):
        find_python(str(path))


@pytest.mark.parametrize("scenario", ["small-dense", "large-dense"])
def test_the_built_in_scenarios_can_be_planned_with_and_without_a_gpu(scenario):
    assert len(plan(info=find_scenario(scenario)).lanes) == 2
    assert len(plan(info=find_scenario(scenario), found=TWO_GPUS).lanes) == 2


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ({}, ALWAYS_VALID),
        ({"steps": 500}, ALWAYS_VALID),
        ({"seconds": 30.0}, SPENDING),
        ({"seconds": 30.0, "watched": False}, FIXED),
        ({"steps": 500, "watched": False}, FIXED),
        ({"seconds": 30.0, "until_ci": 0.05}, ALWAYS_VALID),
        ({"until_ci": 0.05, "watched": False}, ALWAYS_VALID),
    ],
)
def test_intervals_are_made_for_how_the_race_is_looked_at(more, kind):
    race = plan("cpu", "cpu,prefetch=auto", margin=0.1, **more).race
    assert (race.interval, race.margin, race.until_ci) == (kind, 0.1, more.get("until_ci"))


def test_an_amd_gpu_is_shown_to_rocm_by_its_number_and_no_lane_on_the_cpu_sees_it():
    amd = Gpu(index=0, uuid="AMD-8fa5d41e0b2c7301", name="AMD Instinct MI210", physical_gpu=1)
    race = plan("cpu", "gpu:0", found=GpuSearch(gpus=(amd,)))
    cpu, gpu = (lane.environment for lane in race.lanes)
    assert (gpu["HIP_VISIBLE_DEVICES"], gpu["CUDA_VISIBLE_DEVICES"]) == ("1", None)
    assert (cpu["HIP_VISIBLE_DEVICES"], cpu["CUDA_VISIBLE_DEVICES"]) == ("-1", "-1")

"""From the words of the command line to the lanes that are started."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tfmon.api import planner
from tfmon.api.options import Purpose, RaceOptions, interpreter
from tfmon.api.planner import plan_race
from tfmon.errors import EXIT_USAGE, DeviceAbsentError, TfmonError, UsageError
from tfmon.lanes.plan import RacePlan
from tfmon.model.knobs import COMMON, Knob
from tfmon.model.race import ScenarioInfo
from tfmon.model.readings import ALWAYS_VALID, FIXED, SPENDING
from tfmon.probes.base import Gpu
from tfmon.probes.find_gpus import GpuSearch

FIRST = Gpu(index=0, uuid="GPU-aaaa", name="NVIDIA H200", physical_gpu=0)
SECOND = Gpu(index=1, uuid="GPU-bbbb", name="NVIDIA L4", physical_gpu=3)
TWO_GPUS = GpuSearch(gpus=(FIRST, SECOND))
NO_GPU = GpuSearch(reason="the NVIDIA driver is not installed", hint="install it")

KNOBS = (*COMMON, Knob("width", default=128, help="Units.", low=1, high=4096))
CONTRAST = ("prefetch=off", "prefetch=auto")
INFO = ScenarioInfo("net", Path("/scenarios/net.py"), "file", "A net", "", KNOBS, CONTRAST, 1_000)


def plan(
    *lanes: str,
    sets: tuple[str, ...] = (),
    found: GpuSearch = NO_GPU,
    info: ScenarioInfo = INFO,
    watched: bool = True,
    **more,
) -> RacePlan:
    options, purpose = RaceOptions(lanes=lanes, settings=sets, **more), Purpose(watched=watched)
    return plan_race(info, options, lambda _: found, purpose=purpose)[0]


def names(race: RacePlan) -> list[str]:
    return [lane.spec.name for lane in race.lanes]


def values(race: RacePlan, knob: str) -> list[object]:
    return [lane.settings[knob] for lane in race.lanes]


def test_the_cpu_races_the_first_gpu_or_else_two_variants_race_on_the_cpu_and_the_reason_is_told():
    race, no_gpu = plan_race(INFO, RaceOptions(), lambda _: TWO_GPUS)
    assert names(race) == ["cpu", "gpu:0"]
    assert no_gpu == ""

    def refuse(_: object) -> None:
        pytest.fail("no lane is on a GPU")

    assert names(plan_race(INFO, RaceOptions(lanes=("cpu", "cpu")), refuse)[0]) == ["cpu #1", "cpu #2"]
    race, no_gpu = plan_race(INFO, RaceOptions(), lambda _: NO_GPU)
    assert names(race) == ["cpu prefetch=off", "cpu prefetch=auto"]
    assert no_gpu == "the NVIDIA driver is not installed"


def test_a_contrast_may_set_several_knobs_but_none_that_is_set_for_all_lanes_nor_one_that_is_not_there():
    race = plan(info=replace(INFO, contrast=("width=8,prefetch=off", "width=16,prefetch=2")))
    assert values(race, "width") == [8, 16]
    assert values(race, "prefetch") == ["off", 2]
    race = plan(sets=("width=64",), info=replace(INFO, contrast=("width=8", "width=16")))
    assert set(values(race, "width")) == {64}
    assert names(race) == ["cpu prefetch=off", "cpu prefetch=auto"]
    assert names(plan(sets=("prefetch=1",))) == ["cpu"]
    with pytest.raises(UsageError, match=r"the contrast of net\.py: .*depth"):
        plan(info=replace(INFO, contrast=("depth=1", "depth=2")))


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


def test_a_setting_of_a_lane_goes_before_one_for_all_lanes_and_that_before_the_default():
    race = plan("cpu,batch_size=8", "cpu", sets=("batch_size=16", "width=64"))
    assert values(race, "batch_size") == [8, 16]
    assert values(race, "width") == [64, 64]
    assert values(race, "prefetch") == ["auto", "auto"]


@pytest.mark.parametrize(
    ("lane", "said"),
    [
        ("tpu", "no device 'tpu'"),
        ("cpu,depth=3", "no knob 'depth'.*batch_size, prefetch, .* or width"),
        ("cpu,width=5000", "width takes a whole number from 1 to 4096"),
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
    # Where the file does not say how many examples there are, the trainer finds out.
    assert values(plan("cpu,batch_size=100000", info=replace(INFO, examples=None)), "batch_size") == [100_000]


@pytest.mark.parametrize("value", ["inf", "1e999"])
@pytest.mark.parametrize("where", ["lane", "set", "default"])
def test_a_number_that_the_wire_and_json_cannot_carry_is_refused(value, where):
    rate = Knob("rate", default=float(value) if where == "default" else 0.5, help="A rate.", low=0.0)
    info = replace(INFO, knobs=(*INFO.knobs, rate))
    lane = f"cpu,rate={value}" if where == "lane" else "cpu"
    with pytest.raises(UsageError, match="rate=inf is not possible"):
        plan(lane, sets=(f"rate={value}",) if where == "set" else (), info=info)


def test_a_python_is_found_by_path_or_as_a_command_and_links_are_not_followed(tmp_path, monkeypatch):
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert interpreter(str(link)) == interpreter("~/python") == link, "an environment is found by its place"
    assert interpreter(Path(sys.executable).name) == Path(sys.executable)
    for path in (tmp_path / "nothing", tmp_path):
        with pytest.raises(UsageError, match="a program that can be run"):
            RaceOptions(python=path)


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ({}, ALWAYS_VALID),
        ({"seconds": 30.0}, SPENDING),
        ({"seconds": 30.0, "watched": False}, FIXED),
        ({"steps": 500, "watched": False}, FIXED),
        ({"until_ci": 0.05, "watched": False}, ALWAYS_VALID),
    ],
)
def test_intervals_are_made_for_how_the_race_is_looked_at(more, kind):
    race = plan("cpu", "cpu,prefetch=auto", margin=0.1, **more).race
    assert (race.interval, race.margin, race.until_ci) == (kind, 0.1, more.get("until_ci"))


def test_amd_gpus_are_shown_to_rocm_by_their_numbers_and_no_lane_on_the_cpu_sees_one():
    amd = tuple(Gpu(index, f"AMD-{index}", "AMD Instinct MI210", physical_gpu=index + 2) for index in range(2))
    race = plan("cpu", "gpu:all", found=GpuSearch(gpus=amd))
    cpu, gpu = (lane.environment for lane in race.lanes)
    assert (gpu["HIP_VISIBLE_DEVICES"], gpu["CUDA_VISIBLE_DEVICES"]) == ("2,3", None)
    assert (cpu["HIP_VISIBLE_DEVICES"], cpu["CUDA_VISIBLE_DEVICES"]) == ("-1", "-1")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A home folder and a working folder with nothing in them, and an interpreter without TensorFlow."""
    home, work = tmp_path / "home", tmp_path / "work" / "project"
    home.mkdir()
    work.mkdir(parents=True)
    monkeypatch.setattr(Path, "home", lambda: home)
    monkeypatch.chdir(work)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(planner.importlib.util, "find_spec", lambda name: None)
    return tmp_path


def environment(prefix: Path, *packages: str) -> Path:
    python = prefix / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("")
    python.chmod(0o755)
    for name in packages:
        package = prefix / "lib" / "python3.12" / "site-packages" / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
    return python


def test_the_active_and_the_nearest_environments_with_tensorflow_are_named(machine, monkeypatch):
    environment(machine / "work" / ".venv", "numpy")
    beside = environment(machine / "work" / "project" / "venv", "tensorflow")
    pyenv = environment(machine / "home" / ".pyenv" / "versions" / "3.12.1", "tensorflow")
    conda = environment(machine / "home" / "miniconda3" / "envs" / "my tf", "tensorflow")
    assert planner.find_tensorflow() == [beside, pyenv, conda]
    with pytest.raises(TfmonError) as refused:
        planner.need_tensorflow(Path(sys.executable))
    assert refused.value.message == f"{sys.executable} has no TensorFlow"
    assert f"--python {beside} (also in {pyenv}, '{conda}')" in refused.value.hint
    assert "\n" not in refused.value.line
    active = environment(machine / "elsewhere", "tensorflow")
    monkeypatch.setenv("VIRTUAL_ENV", str(machine / "elsewhere"))
    assert planner.find_tensorflow() == [active, beside, pyenv]


def test_without_any_it_says_how_to_install_it_and_a_named_interpreter_answers_for_itself(machine):
    with pytest.raises(TfmonError, match="no other Python with it was found") as refused:
        planner.need_tensorflow(Path(sys.executable))
    assert refused.value.hint.endswith("-m pip install tensorflow")
    planner.need_tensorflow(Path("/usr/bin/python-of-the-user"))

"""tfmon.sweep: the same code path as the command, with a typed result; and the places of a sweep."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

import tfmon
from tfmon.api import sweep_program
from tfmon.api.options import RaceOptions
from tfmon.api.sweep_program import open_stations, split_places
from tfmon.errors import DeviceAbsentError, TfmonError, UsageError
from tfmon.lanes.remote.ray import RayCluster
from tfmon.model.knobs import COMMON
from tfmon.model.race import Machine, Race, ScenarioInfo
from tfmon.model.series import Attempt
from tfmon.model.session import Session
from tfmon.model.spec import parse_lane


@pytest.mark.process
@pytest.mark.usefixtures("scripted")
def test_a_sweep_returns_what_the_command_prints_and_goes_on_with_its_file(command, tmp_path, monkeypatch):
    monkeypatch.setenv("FASTER", "batch_size=16:0.7 batch_size=64:1.6")
    told: list[str] = []
    file, over, base = tmp_path / "night.sweep", {"batch_size": [16, 32, 64, 4_000]}, {"batch_size": 32}
    how = {"slice_s": 0.2, "until_ci": 0.05, "record": file, "progress": told.append}
    result = tfmon.sweep("small-dense", over, settings=base, **how)
    assert isinstance(result, tfmon.SweepResult) and result.file == file and result.interrupted is None
    best, baseline, _, refused = result.combinations
    assert result.best() == best and best.settings == {"batch_size": 64}
    assert best.ratio_ci95 is not None and best.ratio_ci95[0] < 1.6 < best.ratio_ci95[1]
    assert best.data["interval_kind"] == "always-valid" and best.data["learns_differently_by"] == ["batch_size"]
    assert (baseline.state, baseline.examples_per_s) == ("baseline", pytest.approx(10_000, rel=0.05))
    assert refused.state == "refused" and "at most 1000" in refused.reason
    assert "1.6" in str(result) and "best: batch_size=64" in result.text
    assert any("settled" in line for line in told)
    before = file.read_bytes()
    again, ran = tfmon.sweep(resume=file, progress=False), command("sweep", "--resume", file, "--json")
    printed = json.loads(ran.out)
    assert again.to_json()["combinations"] == printed["combinations"] == result.to_json()["combinations"]
    assert (ran.code, printed["best"], printed["file"]) == (0, {"cpu": {"batch_size": 64}}, str(file))
    assert file.read_bytes() == before, "nothing was left to measure"
    frame = result.to_frame()
    assert list(frame["batch_size"]) == [64, 32, 16, 4_000] and frame["ratio"][0] == best.ratio
    with pytest.raises(tfmon.TfmonError, match="nothing was measured on gpu"):
        result.best("gpu")


@pytest.mark.parametrize(
    ("function", "arguments", "said"),
    [
        ("sweep", {}, "a scenario, or a command of your own"),
        ("sweep", {"resume": "x", "limit_s": 9, "over": {"batch_size": [1, 2]}}, "leave over and limit_s out"),
        ("sweep", {"scenario": "small-dense", "ray_python": "/nowhere"}, "ray_python='/nowhere' is not possible"),
        ("race", {"seconds": 1, "steps": 5}, "seconds and steps exclude each other"),
        ("race", {"mode": "concurrent", "fresh": True}, "fresh needs mode turns"),
        ("race", {"scenario": "small-dense", "command": ["true"]}, "not both"),
        ("race", {"settings": {"batch": 3}}, "batch"),
    ],
)
def test_arguments_that_exclude_each_other_are_refused_in_a_line(function, arguments, said):
    with pytest.raises(UsageError) as caught:
        getattr(tfmon, function)(**arguments, progress=False)
    assert said in caught.value.line and "\n" not in caught.value.line


def test_a_ray_cluster_is_named_as_on_the_command_line(monkeypatch):
    told: list[object] = []
    monkeypatch.setattr(RayCluster, "workers", lambda self, word: told.append((self.address, word)) or 0)
    with pytest.raises(tfmon.DeviceAbsentError, match="Ray has no room for ray/gpu now"):
        tfmon.sweep("small-dense", {"batch_size": [16, 64]}, on="ray/gpu", ray="10.0.0.1:6379", progress=False)
    assert told == [("10.0.0.1:6379", "ray/gpu")]


INFO = ScenarioInfo("small", Path("small.py"), "file", "Small")


@pytest.mark.parametrize(
    ("words", "places"),
    [
        (("cpu",), [("cpu", 1)]),
        (("gpu:0, gpu2/gpu", "cpu"), [("gpu:0", 1), ("gpu2/gpu", 1), ("cpu", 1)]),
        (("ray/gpu*2", "ray/gpu*1"), [("ray/gpu", 1), ("ray/gpu", 2), ("ray/gpu", 3)]),
        (("ray:H100/gpu", "ray/gpu*1"), [*(("ray:H100/gpu", number) for number in (1, 2, 3)), ("ray/gpu", 1)]),
        (
            ("ray:H100/gpu", "ray:A100/gpu"),
            [(f"ray:{kind}/gpu", number) for kind in ("H100", "A100") for number in (1, 2, 3)],
        ),
    ],
)
def test_a_word_is_a_place_and_on_ray_as_many_as_there_is_room_for(monkeypatch, words, places):
    monkeypatch.setattr(RayCluster, "workers", lambda self, word: 3)
    assert split_places(words) == places


@pytest.mark.parametrize(
    "words",
    [["cpu*2"], ["ray/gpu*0"], ["ray/gpu*x"], [""], ["cpu,batch_size=3"], ["ray/gpu*9999999"]]
    + [["ray/gpu", word] for word in ("ray/gpu", "ray:H100/gpu")],
)
def test_what_is_no_place_or_twice_the_same_is_told(monkeypatch, words):
    monkeypatch.setattr(RayCluster, "workers", lambda self, word: 3)
    with pytest.raises(UsageError):
        split_places(words)


def test_a_place_that_cannot_be_used_closes_the_others(monkeypatch):
    first, last = Mock(), Mock()
    monkeypatch.setattr(sweep_program, "PlaceStation", Mock(side_effect=[first, TfmonError("bad is gone"), last]))
    with pytest.raises(TfmonError, match="bad is gone"):
        open_stations(INFO, ["a", "bad", "c"], RaceOptions(record=False), {})
    assert first.program.close.called and last.program.close.called


def test_the_most_devices_are_looked_for_first_because_ray_reserves_so_many_and_absent_ones_are_told(monkeypatch):
    asked = []

    class Planner:
        def __init__(self, options, purpose):
            self.session = Session(Machine(), lambda: 0)
            self.session.set_machine(Machine(), "ray")

        def plan(self, info, options):
            asked.append(options.lanes)
            if options.lanes == ("ray/8xgpu",):
                raise DeviceAbsentError("there are 4 GPUs")
            specs = [replace(parse_lane(word, COMMON), name=word) for word in options.lanes]
            return SimpleNamespace(lanes=[SimpleNamespace(spec=spec) for spec in specs], race=Race())

        def begin(self, plan):
            pass

    monkeypatch.setattr(sweep_program, "Program", Planner)
    place = sweep_program.PlaceStation(INFO, "ray/gpu", RaceOptions(record=False), counts=(2, 8, 4))
    assert asked == [("ray/8xgpu",), ("ray/4xgpu",), ("ray/2xgpu",)]
    assert (place.place, place.kind, place.absent) == ("ray/gpu", "gpu", {8: "there are 4 GPUs"})
    begun = place.begin(Attempt(0, "gpu", {"batch_size": 64, "gpus": 4}))
    assert begun == ("ray/2xgpu", "ray/4xgpu,batch_size=64")

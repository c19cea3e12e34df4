"""tfmon.sweep: the same code path as the command, with a typed result; and the places of a sweep."""

import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import tfmon
from tfmon.api import sweep_program
from tfmon.api.options import RaceOptions, SweepOptions
from tfmon.api.sweep_program import close_all, open_stations, split_places
from tfmon.catalog import ScenarioInfo
from tfmon.errors import DeviceAbsentError, TfmonError, UsageError
from tfmon.lanes.remote.ray import RayCluster
from tfmon.model.knobs import COMMON
from tfmon.model.race import Machine, Race
from tfmon.model.series import Attempt
from tfmon.model.session import Session
from tfmon.model.spec import parse_lane


@pytest.mark.process
@pytest.mark.usefixtures("scripted")
def test_a_sweep_returns_what_the_command_prints_and_goes_on_with_its_file(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTER", "batch_size=16:0.7 batch_size=64:1.6")
    told: list[str] = []
    file = tmp_path / "night.sweep"
    over = {"batch_size": [16, 32, 64]}
    base = {"batch_size": 32}
    result = tfmon.sweep(
        "small-dense", over, settings=base, slice_s=0.2, until_ci=0.05, record=file, progress=told.append
    )
    assert isinstance(result, tfmon.SweepResult) and result.file == file and result.interrupted is None
    best = result.best()
    assert best.settings == {"batch_size": 64}
    assert best.ratio_ci95 is not None and best.ratio_ci95[0] < 1.6 < best.ratio_ci95[1]
    assert result.combinations[1].state == "baseline"
    assert result.combinations[1].examples_per_s == pytest.approx(10_000, rel=0.05)
    assert (
        "1.6" in str(result) and "best: batch_size=64" in result.text and any("settled" in line for line in told)
    )
    again = tfmon.sweep(resume=file, progress=False)
    assert again.to_json()["combinations"] == result.to_json()["combinations"]
    frame = result.to_frame()
    assert list(frame["batch_size"]) == [64, 32, 16] and frame["ratio"][0] == best.ratio
    with pytest.raises(tfmon.TfmonError, match="nothing was measured on gpu"):
        result.best("gpu")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "a scenario, or a command of your own"),
        ({"resume": "x", "record": "y"}, "leave record out"),
        ({"resume": "x", "limit_s": 9, "over": {"batch_size": [1, 2]}}, "leave over and limit_s out"),
        ({"scenario": "small-dense", "ray_python": "/nowhere"}, "ray_python /nowhere is not a program"),
    ],
)
def test_what_is_not_possible_raises(arguments, said):
    with pytest.raises(UsageError) as caught:
        tfmon.sweep(**arguments, progress=False)
    assert said in caught.value.line


@pytest.mark.parametrize(
    ("words", "arguments", "places"),
    [
        (
            ("small-dense", "--over", "batch_size=16,64", "--limit", "9", "--until-ci", "5%", "--all"),
            {"over": {"batch_size": [16, 64]}, "limit_s": 9, "until_ci": 0.05, "everything": True},
            (),
        ),
        (("small-dense", "--over", "gpus=1..4", "--on", "gpu"), {"over": {"gpus": "1..4"}, "on": "gpu"}, ("gpu",)),
        (("--resume", "x"), {"resume": "x"}, ()),
    ],
)
def test_the_words_and_the_same_arguments_become_the_same_options(command, monkeypatch, words, arguments, places):
    seen = []

    def program(options):
        seen.append(options)
        raise UsageError("seen")

    for module in ("sweep_program", "python"):
        monkeypatch.setattr(f"tfmon.api.{module}.SweepProgram", program)
    assert command("sweep", *words, "--headless").code == 2
    with pytest.raises(UsageError, match="seen"):
        tfmon.sweep(words[0] if "resume" not in arguments else None, progress=False, **arguments)
    same = [option.name for option in SweepOptions.declared()]
    assert [getattr(seen[0], name) for name in same] == [getattr(seen[1], name) for name in same]
    assert seen[0].on == places


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
        (("ray:H100/gpu",), [("ray:H100/gpu", 1), ("ray:H100/gpu", 2), ("ray:H100/gpu", 3)]),
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
    "word", ["cpu*2", "gpu2/gpu*4", "ray/gpu*0", "ray/gpu*x", "", "cpu,batch_size=3", "ray/gpu*9999999"]
)
def test_what_is_no_place_is_told(word):
    with pytest.raises(UsageError):
        split_places([word])


@pytest.mark.parametrize("word", ["ray/gpu", "ray:H100/gpu", "ray:2/gpu"])
def test_free_gpus_of_a_cluster_are_counted_once(monkeypatch, word):
    monkeypatch.setattr(RayCluster, "workers", lambda self, word: 3)
    with pytest.raises(UsageError, match="have devices in common"):
        split_places(["ray/gpu", word])


class Place:
    """A place that is opened and closed only along with two others."""

    together = threading.Barrier(3, timeout=30)
    closed: list[str] = []  # noqa: RUF012 - of all

    def __init__(self, info, word, race, number, counts):
        self.together.wait()
        self.word = word
        if word == "bad":
            raise TfmonError("bad is gone")

    def close(self):
        if "bad" not in WORDS:
            self.together.wait()
        self.closed.append(self.word)


WORDS: list[str] = []


@pytest.mark.parametrize("words", [["a", "b", "c"], ["a", "bad", "c"]])
def test_places_are_opened_and_closed_together_and_one_that_cannot_be_used_closes_the_others(monkeypatch, words):
    monkeypatch.setattr(sweep_program, "PlaceStation", Place)
    monkeypatch.setattr(Place, "closed", [])
    WORDS[:] = words
    if "bad" in words:
        with pytest.raises(TfmonError, match="bad is gone"):
            open_stations(INFO, words, RaceOptions(record=False), {})
    else:
        close_all(open_stations(INFO, words, RaceOptions(record=False), {}))
    assert sorted(Place.closed) == [word for word in words if word != "bad"]


def test_the_most_devices_are_looked_for_first_because_ray_reserves_so_many_and_absent_ones_are_told(monkeypatch):
    asked = []

    class Planner:
        def __init__(self, options, purpose):
            self.session = Session(Machine(), lambda: 0)

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
    assert place.begin(Attempt(0, "gpu", {"batch_size": 64, "gpus": 4})) == (
        "ray/2xgpu",
        "ray/4xgpu,batch_size=64",
    )

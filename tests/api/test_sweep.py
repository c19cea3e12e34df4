"""`tfmon.sweep`: the same code path as the command, with a typed result."""

from __future__ import annotations

import pytest

import tfmon
from tfmon.errors import UsageError
from tfmon.lanes.remote.ray import RayCluster


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
        ({"scenario": "small-dense", "over": {}}, "no knob is swept"),
        ({"scenario": "small-dense", "over": {"hue": [1, 2]}}, "no knob 'hue'"),
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

    for module in ("sweep", "python"):
        monkeypatch.setattr(f"tfmon.api.{module}.SweepProgram", program)
    assert command("sweep", *words, "--headless").code == 2
    with pytest.raises(UsageError, match="seen"):
        tfmon.sweep(words[0] if "resume" not in arguments else None, progress=False, **arguments)
    assert seen[0] == seen[1] and seen[0].places == places


def test_a_ray_cluster_is_named_as_on_the_command_line(monkeypatch):
    told: list[object] = []
    monkeypatch.setattr(RayCluster, "workers", lambda self, word: told.append((self.address, word)) or 0)
    with pytest.raises(tfmon.DeviceAbsentError, match="Ray has no room for ray/gpu now"):
        tfmon.sweep("small-dense", {"batch_size": [16, 64]}, on="ray/gpu", ray="10.0.0.1:6379", progress=False)
    assert told == [("10.0.0.1:6379", "ray/gpu")]

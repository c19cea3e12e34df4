"""`tfmon profile`, from the words to the table."""

from __future__ import annotations

import json
import shutil

import pytest


@pytest.mark.tensorflow
def test_steps_are_profiled_and_the_trace_is_kept_in_both_forms(tfmon, tmp_path):
    chrome, keep = tmp_path / "trace.json", tmp_path / "kept"
    done = tfmon("profile", "eager-graph", "--steps", "10", "--json", "--chrome", chrome, "--keep", keep)
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["schema"], found["steps"], found["mode"]) == (7, 10, "graph")
    assert found["step_ns"] > 0 and found["bottleneck"]["kind"] in ("compute", "dispatch", "mixed")
    assert any("Conv2D" in op["kind"] for op in found["ops"]["top"])
    assert json.loads(chrome.read_text())["traceEvents"]
    assert list(keep.glob("plugins/profile/*/*.xplane.pb"))


@pytest.mark.process
def test_a_lane_that_cannot_train_says_why(tfmon):
    done = tfmon("profile", "small-dense", "--python", shutil.which("true"))
    assert (done.code, done.out) == (1, "")
    assert "exited with code 0" in done.err


@pytest.mark.process
def test_a_profile_that_cannot_be_taken_says_why_and_leaves_no_folder(tfmon, scripted, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("tfmon.lanes.group.PROFILE_TIMEOUT_S", 0.2)
    done = tfmon("profile", "small-dense")
    assert (done.code, done.out) == (2, "")
    assert "cpu wrote no profile within 0 s" in done.err
    assert not list(tmp_path.glob("tfmon-profile-*"))


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["small-dense", "--steps", "0"], 2, "--steps"),
        (["small-dense", "--lane", "gpu:7"], 3, "gpu:7 is not there"),
        (["small-dense", "--chrome", "/proc/x.json"], 2, "--chrome /proc/x.json cannot be written: "),
        (["small-dense", "--keep", "/proc/nowhere"], 2, "--keep /proc/nowhere is not a folder that can be made"),
    ],
)
def test_what_cannot_be_gets_a_clear_line(tfmon, words, code, said):
    done = tfmon("profile", *words)
    assert done.code == code
    assert said in " ".join(done.err.split())

"""`tfmon profile`, from the words to the table."""

import json
import shutil
from pathlib import Path

import pytest
from support.recordings import record
from support.ui import racing_demo

from tests.ui.test_profiles_page import profiled
from tfmon.model.header import JSON_SCHEMA


@pytest.mark.tensorflow
def test_steps_are_profiled_and_the_trace_is_kept_in_both_forms(tfmon, tmp_path):
    chrome, keep = tmp_path / "trace.json", tmp_path / "kept"
    done = tfmon("profile", "eager-graph", "--steps", "10", "--json", "--chrome", chrome, "--keep", keep)
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["schema"], found["steps"], found["mode"]) == (JSON_SCHEMA, 10, "graph")
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
    monkeypatch.setattr("tfmon.api.profiling.TIMEOUT_S", 0.2)
    done = tfmon("profile", "small-dense")
    assert (done.code, done.out) == (2, "")
    assert "cpu wrote no profile within 0 s" in done.err
    assert not list(tmp_path.glob("tfmon-profile-*"))


@pytest.mark.slow
@pytest.mark.tensorflow
def test_two_lanes_are_compared_and_their_traces_again_later(tfmon, tmp_path):
    """A batch of 256 through one large layer takes longer than one of 16: its products explain it."""
    chrome, keep, page = tmp_path / "both.json", tmp_path / "kept", tmp_path / "page.html"
    lanes = ["--lane", "cpu,batch_size=16", "--lane", "cpu,batch_size=256", "--set", "variant=dense"]
    more = ["--profiles", "2", "--steps", "5", "--json", "--chrome", chrome, "--keep", keep, "--html", page]
    done = tfmon("profile", Path(__file__).parents[2] / "benchmarks" / "one_large_layer.py", *lanes, *more)
    assert done.code == 0, done.err
    result = json.loads(done.out)
    rows = result["parts"]["operation"]
    assert sum(row["difference"]["value_ns"] for row in rows) == pytest.approx(result["difference"]["value_ns"])
    first, second = result["sides"]
    assert (first["id"], second["id"]) == ("A", "B") and second["step_ns"] > first["step_ns"]
    assert result["difference"]["value_ns"] == pytest.approx(second["step_ns"] - first["step_ns"])
    largest = max((row for row in rows if row["kind"]), key=lambda row: row["difference"]["value_ns"])
    assert "large" in largest["name"] and largest["difference"]["value_ns"] > 0
    assert any("256" in note for note in result["notes"])
    names = {one["args"]["name"] for one in json.loads(chrome.read_text())["traceEvents"] if "ts" not in one}
    assert {"A cpu batch_size=16: /host:CPU", "B cpu batch_size=256: /host:CPU"} <= names
    assert "What explains the difference" in page.read_text()
    again = tfmon("profile", keep / "A", keep / "B", "--json", "--chrome", tmp_path / "again.json")
    assert again.code == 0, again.err
    read = json.loads(again.out)
    assert [side["profiled_step_ns"] for side in read["sides"]] == [
        side["profiled_step_ns"] for side in result["sides"]
    ]
    assert read["parts"]["kind"] == result["parts"]["kind"]
    assert len(json.loads((tmp_path / "again.json").read_text())["traceEvents"]) > 100


def test_the_profiles_of_recordings_are_compared(tfmon, tmp_path):
    path = tmp_path / "race.jsonl"

    def happen():
        demo = racing_demo()
        profiled(demo, *demo.names)
        return demo

    record(path, happen)
    done = tfmon("profile", f"{path}:C", f"{path}:G")
    assert done.code == 0, done.err
    text = " ".join(done.out.split())
    assert "A (race, cpu) takes 39.4 ms a step, B (race, gpu:0) 6.57 ms: 32.8 ms less" in text
    assert "MatMul net/dense" in done.out
    assert "no profile to compare" in tfmon("profile", f"{path}:X", f"{path}:G").err

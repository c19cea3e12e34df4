"""`tfmon profile`, from the words to the table."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

BROKEN = '''"""It has no data."""

from tfmon.trainer import Scenario


class Broken(Scenario):
    contrast = ("batch_size=1", "batch_size=2")

    def data(self):
        raise ValueError("no data")
'''


def profile(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tfmon", "profile", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)


@pytest.mark.tf
def test_steps_are_profiled_and_the_trace_is_kept_in_both_forms(tmp_path):
    chrome, keep = tmp_path / "trace.json", tmp_path / "kept"
    done = profile("eager-graph", "--steps", "10", "--json", "--chrome", str(chrome), "--keep", str(keep))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["schema"], found["steps"], found["mode"]) == (1, 10, "graph")
    assert found["step_ns"] > 0 and found["bottleneck"]["kind"] in ("compute", "dispatch", "mixed")
    assert any("Conv2D" in op["type"] for op in found["ops"]["top"])
    assert json.loads(chrome.read_text())["traceEvents"]
    assert list(keep.glob("plugins/profile/*/*.xplane.pb"))


@pytest.mark.tf
def test_of_a_pipeline_that_fills_the_trace_there_are_fewer_steps():
    done = profile("slow-preprocess", "--lane", "cpu", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["bottleneck"]["kind"] == "input" and found["steps"] < 20
    assert [stage["name"] for stage in found["input"]["stages"]].count("Map") == 1
    assert any(note.startswith(f"Only {found['steps']} steps and not 20") for note in found["notes"])


@pytest.mark.tf
def test_a_lane_that_fails_says_why(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text(BROKEN)
    done = profile(str(path))
    assert done.returncode == 1
    assert "no data" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nowhere"], 2, "there is no scenario 'nowhere'"),
        (["small-dense", "--steps", "0"], 2, "--steps"),
        (["small-dense", "--lane", "tpu"], 2, "a lane runs on cpu, gpu or gpu:N"),
        (["small-dense", "--lane", "gpu:7"], 3, "gpu:7 is not there"),
        (["small-dense", "--keep", "/proc/nowhere"], 2, "--keep /proc/nowhere is no folder that can be made"),
    ],
)
def test_what_cannot_be_gets_a_clear_line(words, code, said):
    done = profile(*words)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)
    assert said in " ".join(done.stderr.split())

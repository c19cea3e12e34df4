"""The fixture `tfmon_race` in a separate pytest: failures, skips, passes, and the printed table."""

import json
from pathlib import Path

import pytest
from support.processes import run_python

pytestmark = pytest.mark.process
ROOT = Path(__file__).parents[2]

CONFTEST = """
import functools, json, os
from pathlib import Path
from tfmon.lanes.group import LaneGroup
from tfmon.probes.find_gpus import GpuSearch
from tfmon.api import program

program.LaneGroup = functools.partial(LaneGroup, script=Path(os.environ["CHILD"]))
program.find_gpus = lambda python: GpuSearch(reason="no driver")
"""
TESTS = """
import pytest

QUICK = dict(lanes=["cpu", "cpu,batch_size=20"], steps=2_000, slice_s=0.2)

def test_speed(tfmon_race):
    result = tfmon_race("small-dense", **QUICK)
    tfmon_race.hold(result, "baselines/speed.json", slower_than=0.3)

def test_gpu(tfmon_race):
    tfmon_race("small-dense", lanes=["gpu"])

def test_failing(tfmon_race, monkeypatch):
    monkeypatch.setenv("FAILS", "no module named 'keras_hub'")
    tfmon_race("./scenarios/own.py", **QUICK)
"""


OWN = """
from tfmon.trainer import Scenario

class Own(Scenario):
    contrast = ("prefetch=off", "prefetch=auto")
"""
ONE = "tests/test_speed.py::test_speed"


@pytest.mark.slow
def test_the_fixture(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    tests = tmp_path / "tests"
    (tests / "scenarios").mkdir(parents=True)
    (tests / "test_speed.py").write_text(TESTS)
    (tests / "scenarios" / "own.py").write_text(OWN)
    baseline = tests / "baselines" / "speed.json"

    def run(*words: str) -> tuple[int, str]:
        child = ROOT / "tests" / "lanes" / "children" / "trainer.py"
        environment = {"PYTHONPATH": str(ROOT), "CHILD": str(child), "COLUMNS": "300"}
        done = run_python("-m", "pytest", "-p", "no:cacheprovider", "-rs", *words, folder=tmp_path, **environment)
        return done.returncode, done.stdout + done.stderr

    code, said = run("--junitxml", str(tmp_path / "junit.xml"))
    assert code == 1 and "1 skipped" in said and "2 failed" in said
    assert f"there is no baseline {baseline}; pytest --tfmon-save writes it" in said
    assert "gpu is not there: no driver" in said
    assert "keras_hub" in said and "Traceback" not in said and "During handling" not in said
    assert 'name="tfmon"' in (tmp_path / "junit.xml").read_text()
    assert "cpu " in said and "examples/s" in said, "the table is shown"
    assert run("--tfmon-save", ONE)[0] == 0
    told = json.loads(baseline.read_text())
    for lane in told["lanes"]:
        lane["others_cpu_pct"] = lane["stolen_pct"] = 0.0
        lane["log_examples_per_s"]["value"] += 2
    baseline.write_text(json.dumps(told))
    code, said = run(ONE)
    if "others may explain it" not in said:
        assert code == 1 and "slower by more than 30 %" in said
    told["machine"]["hostname"] = "elsewhere"
    baseline.write_text(json.dumps(told))
    code, said = run(ONE)
    assert code == 0 and "another machine: hostname was elsewhere" in said


def test_loading_it_imports_nothing_slow():
    code = "import sys, tfmon.pytest_plugin; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    told = run_python("-c", code, folder=ROOT).stdout
    assert "tfmon" in told.split()
    assert not {"psutil", "click", "rich", "numpy", "tensorflow", "textual"} & set(told.split())

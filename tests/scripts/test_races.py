"""Races of a script from the command line: in slices, recorded, replayed, compared; and how they fail there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from support.processes import run_python

from tfmon.recordings.player import play_all

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
Run = Callable[..., subprocess.CompletedProcess[str]]
LANES = ("--lane", "cpu", "--lane", "cpu", "--slice", "0.2")
STEPS = 600
TRAINS = f"""
import time
from tfmon import report
for step in range({STEPS}):
    report.knob("rate", 0.01)
    time.sleep(0.003)
    report.step(examples=4, loss=1.0)
"""
"""A step takes 3 ms or longer, so all of them need several
slices of 0.2 s, however slow the machine is."""


@pytest.fixture
def run(tmp_path) -> Run:
    """Run tfmon in an empty folder."""
    return partial(run_python, "-m", "tfmon", folder=tmp_path, PYTHONPATH=str(ROOT))


@pytest.fixture
def race(run, tmp_path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Race a script."""

    def start(text: str, *words: object) -> subprocess.CompletedProcess[str]:
        (tmp_path / "train.py").write_text(text)
        return run("race", *words, "--json", "--", sys.executable, "train.py")

    return start


@pytest.mark.slow
def test_lanes_in_slices_train_every_step_and_the_replay_says_the_same(race, run, tmp_path):
    live = race(TRAINS, *LANES, "--record", "one.jsonl")
    assert live.returncode == 0, live.stderr
    result = json.loads(live.stdout)
    assert result["mode"] == "turns"
    _, end = play_all(tmp_path / "one.jsonl")
    first, second = ({one.round for one in lane.slices} for lane in end.lanes)
    assert len(first & second) >= 2, "rounds in which both lanes had a slice"
    for lane in result["lanes"]:
        assert (lane["state"], lane["steps"], lane["examples"]) == ("finished", STEPS, 4 * STEPS)
        assert lane["knobs"] == {"rate": 0.01}
        assert lane["discarded"]["after a switch"] >= 2
    again = run("replay", "one.jsonl", "--json")
    assert (again.returncode, again.stdout) == (0, live.stdout), again.stderr

    other = race(TRAINS, *LANES, "--set", "rate=0.02", "--record", "two.jsonl")
    assert other.returncode == 0, other.stderr
    compared = run("diff", "one.jsonl", "two.jsonl", "--json")
    assert compared.returncode == 0, compared.stderr
    assert [lane["second"] for lane in json.loads(compared.stdout)["lanes"]] == ["cpu #1", "cpu #2"]
    assert "rate" in run("diff", "one.jsonl", "two.jsonl").stdout

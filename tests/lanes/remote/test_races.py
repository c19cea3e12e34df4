"""Whole races over hosts, from the command line: recorded and replayed, with own scripts, and how they fail."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.hosts import put_fake_ssh
from support.processes import run_python
from support.results import to_json

import tfmon
from tfmon.analysis.analysis import analyse
from tfmon.model.lane_events import SliceEnded
from tfmon.recordings.header_lines import recorded_on
from tfmon.recordings.player import play_all
from tfmon.recordings.reader import Recording

pytestmark = pytest.mark.process

ROOT = Path(tfmon.__file__).parents[1]
Run = Callable[..., subprocess.CompletedProcess[str]]
TRAINS = """
import os, sys, time
from tfmon import report
print("in", os.getcwd(), "with", sys.argv[1:], flush=True)
for step in range(int(sys.argv[1])):
    time.sleep(0.003)
    report.step(examples=4, loss=1.0)
"""


@pytest.fixture
def run(tmp_path, put) -> Run:
    """Run tfmon where every host is this machine; those named `ahead…` have a clock an hour ahead of ours."""
    ssh, ahead = put_fake_ssh(tmp_path), "time.monotonic_ns = lambda: _ns() + 3_600_000_000_000\n"
    skewed = put("skewed/sitecustomize.py", f"import time\n_ns = time.monotonic_ns\n{ahead}").parent
    tables = "".join(f'[hosts.{host}]\npython = "{sys.executable}"\n' for host in ("gpu2", "gpu3", "ahead"))
    (tmp_path / "config.toml").write_text(tables)

    def start(*words: str, **behaviour: object) -> subprocess.CompletedProcess[str]:
        fake = {"hosts": {"ahead": {"environment": {"PYTHONPATH": str(skewed)}}, **behaviour}}
        own = {"PATH": f"{ssh}:{os.environ['PATH']}", "TFMON_CONFIG": str(tmp_path / "config.toml")}
        own |= {"PYTHONPATH": str(ROOT), "PWD": str(tmp_path), "FAKE_SSH": json.dumps(fake)}
        return run_python("-m", "tfmon", *words, folder=tmp_path, **own)

    return start


@pytest.fixture
def race(run, tmp_path) -> Run:
    (tmp_path / "train.py").write_text(TRAINS)

    def start(*lanes: str, **behaviour: object) -> subprocess.CompletedProcess[str]:
        named = [word for lane in lanes for word in ("--lane", lane)]
        own = ("--", "python", "train.py", "400")
        return run("race", *named, "--slice", "0.2", "--record", "one.jsonl", "--json", *own, **behaviour)

    return start


@pytest.mark.slow
def test_a_race_of_two_hosts_replays_to_the_digit_whatever_their_clocks_show(race, run, tmp_path):
    live = race("gpu2/cpu", "ahead/cpu")
    assert live.returncode == 0, live.stderr
    told = json.loads(live.stdout)
    assert [(lane["host"], lane["steps"], lane["error"]) for lane in told["lanes"]] == [
        ("gpu2", 400, None),
        ("ahead", 400, None),
    ]
    for host, ahead_ms in (("gpu2", 0), ("ahead", 3_600_000)):
        link = told["hosts"][host]
        assert link["clock_offset_ms"] == pytest.approx(-ahead_ms, abs=link["clock_error_ms"] + 1)
    opened, end = play_all(tmp_path / "one.jsonl")
    with Recording(tmp_path / "one.jsonl") as recording:
        ended = [event for event in recording.events() if isinstance(event, SliceEnded)]
    first, second = ({event.round for event in ended if event.lane == lane} for lane in ("gpu2/cpu", "ahead/cpu"))
    assert len(first & second) > 2, "slices of the same round are compared"
    again = to_json(analyse(end), opened.header)
    assert {**again, "recording": None} == {**told, "recording": None}
    begun = opened.header.started_ns
    assert all(abs(event.at_ns - begun) < 1800e9 for event in ended), "no stamp of another clock is left"
    replayed = run("replay", "one.jsonl", "--json")
    assert json.loads(replayed.stdout)["lanes"] == told["lanes"]
    assert "gpu2" in recorded_on(opened.header) and "ahead" in recorded_on(opened.header)


def test_what_is_not_there_is_said_before_the_race_begins(run, race, tmp_path):
    refused = race("cpu", "gpu2/cpu", gpu2={"exit": 255, "says": "ssh: connect: Connection refused"})
    assert refused.returncode == 3
    assert "gpu2 cannot be reached" in json.loads(refused.stdout)["error"]
    assert "gpu2 cannot be reached" in refused.stderr and "Traceback" not in refused.stderr
    assert not (tmp_path / "one.jsonl").exists()
    absent = run("race", "small-dense", "--lane", "gpu3/gpu:0", "--headless", "--no-record")
    assert absent.returncode == 3
    assert "gpu3/gpu:0 is not there" in absent.stderr
    option = run("race", "--lane", "-oProxyCommand=touch x/gpu", "--headless")
    assert option.returncode == 2 and "does not begin with -" in option.stderr
    assert not (tmp_path / "x").exists()

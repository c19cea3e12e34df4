"""`replay`, `runs`, `diff` and `export` as a user meets them; what interrupted and killed races leave."""

import contextlib
import gzip
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.recordings import RECORDED, record
from support.ui import Demo
from support.waiting import wait_for

from tfmon import __version__
from tfmon.model.lane_events import Window
from tfmon.model.spec import LaneSpec
from tfmon.recordings.header_lines import RecordingError
from tfmon.recordings.library import EXAMPLE
from tfmon.recordings.player import play_all
from tfmon.recordings.reader import Recording

ROOT = Path(__file__).parents[2]
RACE = ("race", "small-dense", "--lane", "cpu", "--lane", "cpu,batch_size=64")


def fails(done, problem: str) -> None:
    assert (done.code, done.out) == (2, "")
    assert problem in done.err


@contextlib.contextmanager
def started(*words: str):
    """Run a command in a separate process, with lanes that train nothing."""
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    command = [sys.executable, str(ROOT / "tests" / "support" / "fake_tfmon.py"), *words]
    with subprocess.Popen(command, env=env, stdout=-1, stderr=-1, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def windows_in(folder: Path) -> int:
    try:
        events = [event for path in folder.glob("*.jsonl.gz") for event in Recording(path).events()]
    except RecordingError:
        return 0  # not even the header yet
    return sum(isinstance(event, Window) for event in events)


@pytest.mark.process
class TestRaces:
    def test_the_replay_of_an_interrupted_race_says_so_too(self, folder, run):
        with started(*RACE, "--json", "--seconds", "600") as process:
            wait_for(lambda: windows_in(folder) > 3, what="it races and is recorded")
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate()
        assert process.returncode == 130
        assert "interrupted by SIGINT" in out
        assert run("replay", "last", "--json").out == out

    def test_a_killed_tfmon_leaves_a_recording_that_is_readable_to_its_last_event(self, folder, run):
        with started(*RACE, "--json", "--seconds", "600"):
            wait_for(lambda: windows_in(folder) > 3, what="it races and is recorded")
        done = run("replay", "last", "--json")
        assert done.code == 0, done.err
        assert any(lane["steps"] > 0 for lane in json.loads(done.out)["lanes"])
        (listed,) = json.loads(run("runs", "--json").out)
        assert (listed["closed"], listed["verdict"]) == (False, None)
        assert "was not closed" in run("runs").out

    @pytest.mark.parametrize("words", [("--no-record",), ("--record", "mine.jsonl.gz")])
    def test_a_race_is_recorded_where_requested_or_not_at_all(self, run, scripted, folder, tmp_path, words):
        done = run(*RACE, "--seconds", "0.3", "--headless", *words)
        assert done.code == 0, done.err
        assert not folder.exists()
        file = tmp_path / "mine.jsonl.gz"
        assert (f"recorded in {file}" in done.out) is file.exists() is ("--record" in words)


class TestReplay:
    def test_a_torn_recording_is_replayed_and_the_user_told(self, run, tmp_path):
        torn = tmp_path / "torn.jsonl"
        torn.write_bytes(RECORDED.read_bytes()[:-1_000])
        done = run("replay", torn, "--headless")
        assert done.code == 0
        assert "is cut off at its end" in done.err

    def test_the_example_says_what_it_was_recorded_on_and_is_replayed_to_its_end(self, run):
        done = run("replay", "--example", "--json")
        assert done.code == 0, done.err
        opened, end = play_all(EXAMPLE)
        assert (opened.torn, len(opened)) == (False, opened.closed.events)
        assert json.loads(done.out)["verdict"]["ratio"] == opened.closed.ratio is not None
        said = ("recorded on", end.machine.cpu_name, "no GPU", opened.header.started[:10])
        assert all(word in done.err for word in said)
        assert {mark.text.split()[0] for mark in opened.marks if mark.kind == "knob"} == {"batch_size", "prefetch"}
        fails(run("replay", "last", "--example"), "--example instead")
        fails(run("replay"), "--example instead")

    def test_the_example_is_small_and_says_nothing_about_whoever_recorded_it(self):
        assert EXAMPLE.stat().st_size < 300_000
        text = gzip.decompress(EXAMPLE.read_bytes()).decode()
        assert not re.search(r"/(root|home|Users|work)\b|@|\buser|token|secret", text, re.IGNORECASE)


class TestLists:
    def test_runs_are_listed_compared_and_exported(self, run, folder, tmp_path):
        for prefetch in (8, 64):
            lane = LaneSpec("cpu", {"prefetch": prefetch})
            record(None, lambda lane=lane: Demo([lane]).go().race(2))
        listed = json.loads(run("runs", "--json").out)
        for one in listed:
            assert (one["scenario"], one["closed"], one["tfmon"]) == ("small-dense", True, __version__)
        shown = run("runs").out
        assert all(one["id"] in shown and one["verdict"] in shown for one in listed)
        compared = json.loads(run("diff", "last~1", listed[1]["id"], "--json").out)
        assert [one["what"] for one in compared["differences"]] == ["A: prefetch"]
        assert run("export", "last", "--json", "-o", "out.json").code == 0
        assert len(json.loads((tmp_path / "out.json").read_text())["samples"]) > 10

    def test_nothing_is_recorded_yet(self, run):
        assert "no race was recorded" in run("runs").out
        assert json.loads(run("runs", "--json").out) == []
        fails(run("replay", "last"), "there are 0 recordings")

    def test_an_unreadable_file_among_the_runs_does_not_hide_the_others(self, run, folder):
        folder.mkdir(parents=True)
        (folder / "20260101-000000-bad.jsonl").write_text("nonsense")
        (folder / "20260102-000000-good.jsonl").write_bytes(RECORDED.read_bytes())
        shown = run("runs").out
        assert "is not a recording of tfmon" in shown
        assert "5.5×" in shown

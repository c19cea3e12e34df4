"""Recordings as a user meets them: races that are recorded, replayed, listed, compared, exported; and killed."""

from __future__ import annotations

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
from support.recordings import REAL
from support.terminal import Terminal
from support.waiting import wait_for

import tfmon
from tfmon.recordings.library import EXAMPLE
from tfmon.recordings.player import play_all
from tfmon.recordings.reader import Recording

ROOT = Path(__file__).parents[1]
SCRIPTED = ROOT / "tests" / "support" / "gpu_tfmon.py"
"""tfmon with lanes that train nothing."""
LANES = ("--lane", "cpu", "--lane", "cpu,batch_size=64")


@pytest.fixture
def place(tmp_path) -> Path:
    return tmp_path / "recordings"


@pytest.fixture
def environment(place) -> dict[str, str]:
    own = {"TFMON_RECORDINGS": str(place), "CUDA_VISIBLE_DEVICES": "-1", "COLUMNS": "100", "PYTHONPATH": str(ROOT)}
    return {**os.environ, **own}


@pytest.fixture
def run(environment, tmp_path):
    def start(*words: object, program=("-m", "tfmon"), before=()) -> subprocess.CompletedProcess[str]:
        command = [*before, sys.executable, *program, *map(str, words)]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
        )

    return start


def scripted(run, *words: object) -> subprocess.CompletedProcess[str]:
    return run("race", "small-dense", *LANES, *words, program=(str(SCRIPTED),))


def fails(done: subprocess.CompletedProcess[str], problem: str) -> None:
    assert done.returncode == 2
    assert done.stdout == ""
    assert problem in done.stderr
    assert "Traceback" not in done.stderr


# ------------------------------------------------------------ a race and its replay


@pytest.mark.tf
def test_a_replay_ends_with_the_figures_of_the_race_to_the_digit(run, place):
    live = run("race", "small-dense", *LANES, "--seconds", "4", "--slice", "0.2", "--json")
    assert live.returncode == 0, live.stderr
    result = json.loads(live.stdout)
    assert result["lanes"][0]["steps"] > 0
    assert result["verdict"]["ratio"] is not None
    assert (Path(result["recording"]).parent, result["recording_stopped"]) == (place, None)
    again = run("replay", "last", "--json")
    assert again.returncode == 0, again.stderr
    assert again.stdout == live.stdout


def test_what_a_crossover_measured_is_recorded(run, tmp_path):
    words = ("--from", "8", "--to", "16", "--slice", "0.2", "--json", "--record", "curve.jsonl")
    done = run("crossover", "small-dense", "--lane", "cpu", "--lane", "cpu", *words, program=(str(SCRIPTED),))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["recording"] == str(tmp_path / "curve.jsonl")
    _, end = play_all(tmp_path / "curve.jsonl")
    assert end.experiment is not None and end.experiment.over
    assert end.experiment.values == (8, 16)


def test_a_race_that_is_interrupted_says_so_in_the_replay_too(environment, run, place, tmp_path):
    command = [sys.executable, str(SCRIPTED), "race", "small-dense", *LANES, "--json", "--seconds", "60"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: windows_in(place) > 3, 60, "it races and is recorded")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130
    assert json.loads(out)["lanes"][0]["why"] == "interrupted by SIGINT"
    assert run("replay", "last", "--json").stdout == out


def windows_in(place: Path) -> int:
    """Return how many windows have been recorded."""
    return sum(path.read_bytes().count(b'{"type":"Window"') for path in place.glob("*.jsonl"))


def test_a_killed_tfmon_leaves_a_recording_that_is_readable_to_its_last_event(environment, run, place, tmp_path):
    command = [sys.executable, str(SCRIPTED), "race", "small-dense", *LANES, "--json", "--seconds", "60"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL) as process:
        wait_for(lambda: windows_in(place) > 3, 60, "it races and is recorded")
        process.kill()
    done = run("replay", "last", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["lanes"][0]["steps"] > 0
    listed = json.loads(run("runs", "--json").stdout)
    assert (listed[0]["closed"], listed[0]["verdict"]) == (False, None)
    assert "was not closed" in run("runs").stdout


def test_a_race_is_recorded_where_it_is_wished_or_not_at_all(run, place, tmp_path):
    assert "recorded in" not in scripted(run, "--seconds", "0.3", "--headless", "--no-record").stdout
    assert not place.exists()
    done = scripted(run, "--seconds", "0.3", "--headless", "--record", "mine.jsonl.gz")
    assert f"recorded in {tmp_path / 'mine.jsonl.gz'}" in done.stdout
    assert not place.exists()
    fails(scripted(run, "--headless", "--record", "mine.jsonl.gz"), "the file is there already")
    fails(scripted(run, "--headless", "--record", "none/mine.jsonl"), "No such file or directory")
    fails(scripted(run, "--headless", "--record", "a", "--no-record"), "exclude each other")


def test_a_read_only_home_does_not_stop_a_race(run, place, tmp_path):
    place.touch()
    done = scripted(run, "--seconds", "0.3", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["recording"], result["recording_stopped"]) == (None, "File exists")
    assert result["lanes"][0]["steps"] > 0


def test_a_disk_that_takes_no_more_stops_the_recording_and_not_the_race(run, place):
    """The system itself refuses: no file of this process may be longer than 8 KiB."""
    limited = ("bash", "-c", 'ulimit -f 8; exec "$@"', "limited")
    words = ("race", "small-dense", *LANES, "--seconds", "2", "--slice", "0.2", "--json")
    done = run(*words, program=(str(SCRIPTED),), before=limited)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["recording_stopped"] == "File too large"
    assert result["lanes"][0]["steps"] > 0 and result["verdict"]["ratio"] is not None
    path = Path(result["recording"])
    assert path.read_bytes().endswith(b"}\n"), "the torn line is taken back"
    opened, known = play_all(path)
    assert len(opened) > 3 and known.lanes[0].steps < result["lanes"][0]["steps"]


# ------------------------------------------------------------ the screen


def test_the_screen_replays_a_race_and_its_keys_move_through_it(environment, tmp_path):
    terminal = Terminal("replay", str(REAL), **environment)
    try:
        terminal.wait_for(lambda shown: "replay ×1" in shown and "small-dense" in shown)
        terminal.process.send("+++++++")
        terminal.wait_for(lambda shown: " end " in shown)
        terminal.wait_for(lambda shown: "5.5×" in shown)
        terminal.process.send("r")
        terminal.wait_for(lambda shown: "this is a replay of a race that is over" in shown)
        terminal.process.send("q")
        assert terminal.wait_for_exit() == 0
    finally:
        with contextlib.suppress(OSError):
            terminal.process.close(force=True)


def test_a_replay_without_a_terminal_says_what_does_without(run):
    fails(run("replay", REAL), "a replay needs the screen")
    done = run("replay", REAL, "--headless")
    assert done.returncode == 0
    assert "cpu batch_size=64 is 5.5× faster than cpu" in done.stdout


# ------------------------------------------------------------ the example


def test_the_example_says_what_it_was_recorded_on_and_is_replayed_to_its_end(run):
    done = run("replay", "--example", "--json")
    assert done.returncode == 0, done.stderr
    opened, end = play_all(EXAMPLE)
    assert (opened.torn, len(opened)) == (False, opened.closed.events)
    result = json.loads(done.stdout)
    assert result["verdict"]["ratio"] == opened.closed.ratio is not None
    machine = end.machine
    assert all(
        word in done.stderr for word in ("recorded on", machine.cpu_name, "no GPU", opened.header.started[:10])
    )
    assert {mark.text.split()[0] for mark in opened.marks if mark.kind == "knob"} == {"batch_size", "prefetch"}
    fails(run("replay", "last", "--example"), "--example instead")
    fails(run("replay"), "--example instead")


def test_the_example_is_small_and_tells_nothing_of_whoever_recorded_it():
    assert EXAMPLE.stat().st_size < 300_000
    text = gzip.decompress(EXAMPLE.read_bytes()).decode()
    assert not re.search(r"/(root|home|Users|work)\b|@|user|token|secret", text, re.IGNORECASE)


def test_the_screen_replays_the_example(environment):
    terminal = Terminal("replay", "--example", **environment)
    try:
        terminal.wait_for(lambda shown: "replay ×1" in shown and "small-dense" in shown)
        terminal.process.send("+++++++")
        terminal.wait_for(lambda shown: " end " in shown)
        terminal.process.send("q")
        assert terminal.wait_for_exit() == 0
        assert "recorded on" in terminal.raw
    finally:
        with contextlib.suppress(OSError):
            terminal.process.close(force=True)


# ------------------------------------------------------------ lists, comparisons, exports


def test_runs_are_listed_compared_and_exported(run, tmp_path):
    for batch in (8, 64):
        assert (
            scripted(
                run, "--seconds", "1", "--slice", "0.2", "--headless", "--set", f"prefetch={batch}"
            ).returncode
            == 0
        )
    listed = json.loads(run("runs", "--json").stdout)
    assert [(one["scenario"], one["closed"], one["tfmon"]) for one in listed] == [
        ("small-dense", True, tfmon.__version__)
    ] * 2
    shown = run("runs").stdout
    assert all(one["id"] in shown and one["verdict"] in shown for one in listed)
    compared = json.loads(run("diff", "last~1", listed[1]["id"], "--json").stdout)
    assert {(one["what"], one["first"], one["second"]) for one in compared["differences"]} == {
        ("cpu: prefetch", "8", "64"),
        ("cpu batch_size=64: prefetch", "8", "64"),
    }
    assert "cpu: prefetch" in run("diff", "last~1", "last").stdout
    assert run("export", "last", "--csv").stdout.startswith("time,seconds,subject")
    assert json.loads(run("export", "last", "--json").stdout)["result"]["scenario"] == "small-dense"
    assert run("export", "last", "--csv", "-o", "out.csv").returncode == 0
    assert (tmp_path / "out.csv").read_text().count("\n") > 10
    done = run("export", "last", "--tensorboard", "logs")
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "logs").glob("*/events.out.tfevents.*"))


def test_exporting_never_loads_tensorflow(run):
    done = run("export", REAL, "--tensorboard", "logs", program=("-X", "importtime", "-m", "tfmon"))
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "tensorboard" in loaded
    assert not loaded & {"tensorflow", "keras"}


def test_nothing_recorded_yet(run):
    assert "no race was recorded" in run("runs").stdout
    assert json.loads(run("runs", "--json").stdout) == []
    fails(run("replay", "last"), "there are 0 recordings")


@pytest.mark.parametrize(
    "command", ["replay --json", "diff --json", "export --csv", "export --json", "export --tensorboard logs"]
)
def test_a_bad_recording_gets_one_line(run, tmp_path, command):
    word, *options = command.split()
    bad = tmp_path / "bad.jsonl"
    bad.write_bytes(REAL.read_bytes()[:3_000] + b"nonsense\n" + REAL.read_bytes()[3_000:])
    names = [bad, REAL] if word == "diff" else [bad]
    done = run(word, *names, *options)
    assert done.returncode == 2
    assert "bad.jsonl, line" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unreadable_file_among_the_runs_does_not_hide_the_others(run, place):
    place.mkdir()
    (place / "20260101-000000-bad.jsonl").write_text("nonsense")
    (place / "20260102-000000-good.jsonl").write_bytes(REAL.read_bytes())
    shown = run("runs").stdout
    assert "is no recording of tfmon" in shown
    assert "5.5×" in shown


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("export", REAL), "needs one of --csv, --json and --tensorboard DIR"),
        (("export", REAL, "--csv", "--json"), "needs one of"),
        (("export", REAL, "--tensorboard", "d", "-o", "f"), "--output goes with --csv or --json"),
        (("export", REAL, "--csv", "-o", REAL), "is there already"),
        (("export", REAL, "--csv", "-o", "none/out.csv"), "No such file or directory"),
        (("diff", REAL, "nothing"), "there is no recording nothing"),
    ],
)
def test_wrong_words(run, words, problem):
    fails(run(*words), problem)


def test_the_recording_of_a_torn_file_is_replayed_and_said(run, tmp_path):
    torn = tmp_path / "torn.jsonl"
    torn.write_bytes(REAL.read_bytes()[:-1_000])
    done = run("replay", torn, "--headless")
    assert done.returncode == 0
    assert "is cut off at its end" in done.stderr
    with Recording(torn) as opened:
        assert opened.torn

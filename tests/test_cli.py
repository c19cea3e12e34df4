"""The command as a user runs it: what it prints, how it ends, and what it does not load."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import venv
from pathlib import Path

import psutil
import pytest
from support.waiting import wait_for

from tfmon import __version__

ROOT = Path(__file__).parents[1]
ENVIRONMENT = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "COLUMNS": "100"}
"""Without a GPU, wherever the tests run."""
ENDS_AT_ONCE = str(shutil.which("true"))
"""As an interpreter: a lane that ends before it says a word."""


def start(*words: object, python: tuple[str, ...] = (), **more) -> subprocess.Popen[str]:
    command = [sys.executable, *python, "-m", "tfmon", *map(str, words)]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
    return subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, text=True, **pipes)


def run(*words: object, python: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    process = start(*words, python=python)
    try:
        out, err = process.communicate(timeout=90)
    finally:
        process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def race(*words: object) -> subprocess.CompletedProcess[str]:
    return run("race", *words, "--headless")


# ------------------------------------------------------------ words


def test_version():
    done = run("--version")
    assert (done.returncode, done.stdout.split()[-1]) == (0, __version__)


@pytest.mark.parametrize("words", [("--help",), ("-h",), ("race", "--help")])
def test_help(words):
    done = run(*words)
    assert done.returncode == 0
    assert "Usage:" in done.stdout


def test_help_documents_the_exit_codes():
    text = " ".join(run("--help").stdout.split())
    for code in ("0 fine", "1 a lane failed", "2 wrong usage", "3 a device", "130 interrupted"):
        assert code in text


@pytest.mark.parametrize(
    "words",
    [("--help",), ("--version",), ("list",), ("list", "--json"), ("show", "small-dense"), ("race", "nothing")],
)
def test_what_needs_no_lane_loads_nothing_slow(words):
    done = run(*words, python=("-X", "importtime"))
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "click" in loaded
    assert not loaded & {"tensorflow", "keras", "textual", "rich", "numpy", "scipy", "psutil", "pynvml"}


def test_the_monitor_itself_never_loads_tensorflow():
    done = run(
        "race", "small-dense", "--lane", "cpu", "--headless", "--python", ENDS_AT_ONCE, python=("-X", "importtime")
    )
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "psutil" in loaded
    assert not loaded & {"tensorflow", "keras", "textual"}


def test_list_names_the_scenarios_with_their_titles():
    done = run("list")
    assert done.returncode == 0
    assert re.search(r"^  small-dense +A small dense net", done.stdout, re.MULTILINE)


def test_list_as_json():
    rows = json.loads(run("list", "--json").stdout)
    assert {"name", "title", "origin", "path"} <= set(rows[0])
    assert "large-dense" in {row["name"] for row in rows}


def test_show_says_what_is_trained_and_what_the_knobs_take():
    done = run("show", "small-dense")
    assert done.returncode == 0
    assert "batch_size=10" in done.stdout
    assert "off, auto or a whole number from 1 to 1024" in done.stdout
    assert str(ROOT / "scenarios" / "small_dense.py") in done.stdout


def test_a_reader_that_leaves_early_is_no_error():
    read, write = os.pipe()
    os.close(read)
    process = start("list", stdout=write)
    os.close(write)
    assert process.communicate(timeout=60)[1] == ""
    assert process.returncode == 0


# ------------------------------------------------------------ wrong words


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("race", "smal-dense"), "did you mean small-dense"),
        (("show", "smal-dense"), "did you mean small-dense"),
        (("race", "./absent.py"), "there is no file ./absent.py"),
        (("small-dense",), "tfmon race small-dense"),
        (("rase",), "did you mean `tfmon race`"),
        (("race", "--fast"), "--fast"),
        (("race", "--seconds", "5", "--steps", "5"), "--seconds and --steps exclude each other"),
        (("race", "--seconds", "0"), "--seconds"),
        (("race", "--seconds", "nan"), "--seconds"),
        (("race", "--seconds", "inf"), "--seconds"),
        (("race", "--slice", "nan"), "--slice"),
        (("race", "--mode", "both"), "'turns', 'concurrent'"),
        (("race", "--until-ci", "wide"), "is not a percentage from 2% to 100%"),
        (("race", "--until-ci", "nan"), "is not a percentage from 2% to 100%"),
        (("race", "--until-ci", "5%", "--mode", "concurrent"), "--until-ci needs --mode turns"),
        (("verify", "--seconds", "nan"), "--seconds"),
        (("verify", "--seconds", "inf"), "--seconds"),
        (("race", "--steps", "0"), "--steps"),
        (("race", "--steps", "many"), "--steps"),
        (("race", "--lane", "tpu"), "a lane runs on cpu, gpu or gpu:N"),
        (("race", "--lane", "cpu,depth=1"), "no knob 'depth'; this scenario has batch_size"),
        (("race", "--set", "depth=1"), "no knob 'depth'"),
        (("race", "--set", "prefetch=some"), "prefetch takes off, auto or a whole number"),
        (("race", "--set", "batch_size=0"), "batch_size takes a whole number from 1"),
        (("race", "--set", "batch_size=2000"), "it can be at most 1000"),
        (("race", "--set", "batch_size"), "not KNOB=VALUE"),
        (("race", "--lane", "cpu", "--python", "/nowhere/python"), "/nowhere/python is not a program"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_words_get_a_clear_line_and_exit_code_2(words, said):
    done = run(*words, *(["--headless"] if words[0] == "race" else []))
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def (:\n", "mine.py:1:"),
        ("x = 1\n", "mine.py must define one subclass"),
        ("class Mine(Scenario):\n    batch_size = n\n", "mine.py:2: `batch_size` must be written out"),
    ],
)
def test_a_file_that_is_no_scenario_is_told_with_its_line(source, said, tmp_path):
    (tmp_path / "mine.py").write_text(source)
    done = race(tmp_path / "mine.py")
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("lane", ["gpu", "gpu:7"])
def test_a_gpu_that_is_not_there_ends_with_the_reason_and_starts_nothing(lane, tmp_path):
    trace = tmp_path / "started"
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\ncase "$1" in *bootstrap.py) echo "$@" >> "{trace}";; esac\n')
    python.chmod(0o755)
    done = race("small-dense", "--lane", "cpu", "--lane", lane, "--python", python, "--json")
    assert done.returncode == 3
    assert re.search(r"tfmon: gpu:\d is not there: \w+", done.stderr)
    assert done.stdout == ""
    assert not trace.exists()
    # The same interpreter is started for a lane that can be.
    race("small-dense", "--lane", "cpu", "--python", python)
    assert "bootstrap.py" in trace.read_text()


# ------------------------------------------------------------ races that go wrong


def test_a_lane_that_dies_without_a_word_is_a_failed_lane():
    done = race("small-dense", "--lane", "cpu", "--steps", "5", "--python", ENDS_AT_ONCE, "--json")
    (lane,) = json.loads(done.stdout)["lanes"]
    assert done.returncode == 1
    assert lane["state"] == "failed"
    assert "exit code 0" in lane["why"]


def test_without_a_terminal_it_says_so_and_races_headless():
    done = run("race", "small-dense", "--lane", "cpu", "--steps", "5", "--python", ENDS_AT_ONCE)
    assert done.stderr.splitlines() == ["tfmon: stdout is no terminal: racing without the screen (--headless)"]
    assert done.stdout.startswith("lane ")
    assert "\x1b" not in done.stdout


def test_without_an_end_it_says_how_long_it_races():
    done = race("small-dense", "--lane", "cpu", "--python", ENDS_AT_ONCE)
    assert "racing for 30 s" in done.stderr


def test_an_interpreter_without_tensorflow_gets_the_install_line(tmp_path):
    venv.create(tmp_path / "bare", with_pip=False)
    python = tmp_path / "bare" / "bin" / "python"
    done = race("small-dense", "--lane", "cpu", "--steps", "5", "--python", python)
    assert done.returncode == 1
    assert f"{python} has no TensorFlow" in done.stdout
    assert f"{python} -m pip install tensorflow" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGHUP, 130)])
def test_an_interrupted_race_prints_what_it_has_and_leaves_no_child(number, code):
    process = start(
        "race", "small-dense", "--lane", "cpu", "--lane", "cpu", "--headless", "--json", "--seconds", "60"
    )
    monitor = psutil.Process(process.pid)
    wait_for(lambda: len(monitor.children()) == 2, 60, "two lanes")
    children = monitor.children(recursive=True)
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == code
    assert {lane["why"] for lane in json.loads(out)["lanes"]} == {f"interrupted by {number.name}"}
    assert not [child for child in children if child.is_running()]


# ------------------------------------------------------------ real races


@pytest.mark.tf
def test_a_race_prints_one_json_object_with_true_counts():
    done = race("small-dense", "--steps", "50", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["schema"], told["scenario"]) == (1, "small-dense")
    assert told["machine"]["no_gpu"]
    assert [lane["name"] for lane in told["lanes"]] == ["cpu batch_size=10", "cpu batch_size=256"]
    for lane in told["lanes"]:
        assert (lane["state"], lane["why"], lane["steps"]) == ("finished", None, 50)
        assert lane["examples"] == 50 * lane["knobs"]["batch_size"]
        assert lane["loss"]["last"] > 0
        assert lane["private_bytes"] > 0
        assert lane["gpu_busy_pct"] is None
        assert lane["missing"]["gpu_busy_pct"] == "no GPU in this lane"


RAISES = '''"""A scenario whose data cannot be made."""

from tfmon.trainer import Scenario


class Mine(Scenario):
    def data(self):
        return self.read()

    def read(self):
        raise FileNotFoundError("no such data: train.csv")

    def model(self):
        return None
'''


@pytest.mark.tf
def test_a_scenario_that_raises_is_told_with_the_line_in_the_users_own_file(tmp_path):
    (tmp_path / "mine.py").write_text(RAISES)
    done = race(tmp_path / "mine.py", "--lane", "cpu", "--steps", "5")
    assert done.returncode == 1
    line = RAISES.splitlines().index('        raise FileNotFoundError("no such data: train.csv")') + 1
    assert f"mine.py:{line}: FileNotFoundError: no such data: train.csv" in done.stdout


# ------------------------------------------------------------ a script of the user's own


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("watch",), "name the command: tfmon watch -- python train.py"),
        (("race", "--"), "after -- comes a command"),
        (("race", "small-dense", "--", "python", "x.py"), "not both"),
        (("race", "--steps", 5, "--", "python", "x.py"), "--steps is for scenarios"),
        (("race", "--", "train.py"), "a script needs its Python: tfmon race -- python train.py"),
        (("watch", "--", "no-such-program"), "no-such-program is not a program that can be run"),
        (("watch", "--set", "oops", "--", "true"), "'oops' is not KNOB=VALUE"),
    ],
)
def test_a_command_that_cannot_be_raced_is_told_in_a_line(words, told):
    ended = run(*words)
    assert ended.returncode == 2 and ended.stdout == ""
    assert told in ended.stderr and "Traceback" not in ended.stderr


def test_a_script_is_watched_to_its_end_and_its_result_is_json(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, time\nfrom tfmon import report\n"
        "for step in range(int(sys.argv[1])):\n"
        "    time.sleep(0.002)\n    report.step(examples=8, loss=1 / (step + 1))\n"
    )
    ended = run("watch", "--lane", "cpu", "--no-record", "--json", "--", sys.executable, script, 900)
    assert ended.returncode == 0, ended.stderr
    (lane,) = json.loads(ended.stdout)["lanes"]
    assert (lane["state"], lane["steps"], lane["examples"]) == ("finished", 899, 8 * 899)
    assert lane["command"].endswith("train.py 900")


def test_a_script_that_fails_at_once_is_a_failed_lane_with_its_last_words():
    ended = run("watch", "--lane", "cpu", "--no-record", "--headless", "--", sys.executable, "-c", "1 / 0")
    assert ended.returncode == 1
    assert "the script left with exit code 1: ZeroDivisionError" in ended.stdout

"""`tfmon race`, `watch`, `list`, `show`, and what holds for every command."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from support.processes import run_python
from support.recordings import RECORDED

import tfmon as api
from tfmon import __version__
from tfmon.api.options import Purpose, RaceOptions
from tfmon.cli.main import COMMANDS, cli
from tfmon.errors import UsageError
from tfmon.model.events import LaneEnded
from tfmon.model.header import JSON_SCHEMA
from tfmon.recordings.reader import Recording

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "PYTHONPATH": str(ROOT)}
ENDS_AT_ONCE = str(shutil.which("true"))
"""As an interpreter: a lane that ends before it says a word."""
FULL = "tfmon: standard output cannot be written: No space left on device"


def start(*words: object, program=("-m", "tfmon"), **more) -> subprocess.Popen[str]:
    command = [sys.executable, *program, *map(str, words)]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
    return subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, text=True, **pipes)


def test_the_version_and_the_exit_codes_are_told(tfmon):
    assert tfmon("--version").out.split()[-1] == __version__
    text = " ".join(tfmon("-h").out.split())
    for code in ("0 fine", "1 a lane failed", "2 wrong usage", "3 a device", "7 a lane has", "130 interrupted"):
        assert code in text
    assert "..." not in text.partition("Commands:")[2], "what a command does is said in whole"


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_says_what_it_does_and_what_each_option_is_for(tfmon, name):
    assert tfmon(name, "--help").out.startswith("Usage:")
    command = cli.get_command(click.Context(cli), name)
    assert command is not None and command.help and len(command.get_short_help_str()) < 70
    for parameter in command.params:
        if parameter.param_type_name == "option":
            assert parameter.help and parameter.help[0].isupper() and parameter.help.endswith((".", "lists all."))


@pytest.mark.process
class TestOutput:
    @pytest.mark.parametrize("words", [("list",), ("export", "RUN", "--json")])
    def test_output_that_cannot_be_written_is_one_line_and_code_1(self, words):
        with Path("/dev/full").open("w") as full:
            process = start(*(RECORDED if word == "RUN" else word for word in words), stdout=full)
            _, told = process.communicate()
        assert (process.returncode, told) == (1, f"{FULL}\n")

    def test_a_race_whose_result_cannot_be_printed_says_where_it_is(self, tfmon, scripted, monkeypatch, tmp_path):
        with Path("/dev/full").open("w") as full:
            monkeypatch.setattr(sys, "stdout", full)
            path = tmp_path / "race.jsonl"
            done = tfmon("race", "small-dense", "--lane", "cpu", "--seconds", "1", "--json", "--record", path)
        assert done.code == 1
        assert done.err.splitlines()[-2:] == [FULL, f"  the result is in {path}"]

    def test_a_reader_that_leaves_early_is_no_error(self):
        read, write = os.pipe()
        os.close(read)
        process = start("list", stdout=write)
        os.close(write)
        assert process.communicate()[1] == ""
        assert process.returncode == 0


LOADED = f'''
import sys
from tfmon.cli.main import cli
def loaded(*words):
    try:
        cli.main(list(words), standalone_mode=False)
    except (Exception, SystemExit):
        pass
    print("LOADED", *sorted({{".".join(name.split(".")[:depth]) for name in sys.modules for depth in (1, 2)}}))
for words in (["--help"], ["race", "--help"], ["list", "--json"], ["show", "small-dense"], ["race", "nothing"]):
    loaded(*words)
loaded("race", "small-dense", "--lane", "cpu", "--headless", "--no-record", "--python", "{ENDS_AT_ONCE}")
'''


@pytest.mark.process
def test_what_needs_no_lane_loads_nothing_slow_and_the_monitor_never_loads_tensorflow():
    process = start("-c", LOADED, program=())
    lines = [line.split()[1:] for line in process.communicate()[0].splitlines() if line[:7] == "LOADED "]
    assert len(lines) == 6
    assert not set(lines[0]) & {"tfmon.api", "tfmon.analysis", "tfmon.model", "tfmon.reports"}
    slow = {"tensorflow", "keras", "textual", "rich", "numpy", "scipy", "psutil", "pynvml"}
    assert not set(lines[4]) & slow
    assert not set(lines[5]) & {"tensorflow", "keras", "textual"}


def test_list_names_the_scenarios_and_show_says_what_is_trained_and_what_the_knobs_take(tfmon):
    assert re.search(r"^  small-dense +A small dense net", tfmon("list").out, re.MULTILINE)
    rows = json.loads(tfmon("list", "--json").out)
    assert set(rows[0]) == {"name", "title", "origin", "path"}
    assert "large-dense" in {row["name"] for row in rows}
    shown = tfmon("show", "small-dense").out
    assert "batch_size=10" in shown
    assert "off, auto or a whole number from 1 to 1024" in shown
    assert str(ROOT / "scenarios" / "small_dense.py") in shown


TWO = ("--over", "batch_size=16,64")
WRONG = [
    (("race", "smal-dense"), 2, "did you mean small-dense"),
    (("race", "x/" * 3_000), 2, "there is no file x/x/"),
    (("small-dense",), 2, "tfmon race small-dense"),
    (("rase",), 2, "did you mean `tfmon race`"),
    (("race", "--record", "a", "--no-record"), 2, "--record and --no-record exclude each other"),
    (("race", "--seconds", "nan"), 2, "'--seconds': 'nan' is not a time in seconds above 0, a year at most"),
    (("race", "--wait-idle", "soon"), 2, "'soon' is not a time in minutes from 0 to 10080"),
    (("race", "--until-ci", "2.4%"), 2, "5%; equal processes differ, so one process per lane gives no narrower"),
    (("race", "--until-ci", "5%", "--mode", "concurrent"), 2, "--until-ci needs --mode turns"),
    (("race", "small-dense", *65 * ("--lane", "cpu")), 2, "65 lanes are too many"),
    (("watch", "--notify", "bell", "--baseline", "x", "--", "true"), 2, "--baseline needs --notify COMMAND"),
    (("watch", "--notify", "true", "--slower-than", "3%", "--", "true"), 2, "--slower-than needs --baseline"),
    (("watch",), 2, "name the command: tfmon watch -- python train.py"),
    (("race", "--"), 2, "after -- comes a command"),
    (("race", "--steps", "5", "--", "python", "x.py"), 2, "--steps is for scenarios"),
    (("race", "--", "train.py"), 2, "a script needs its Python: tfmon race -- python train.py"),
    (("watch", "--", "no-such-program"), 2, "no-such-program is not a program that can be run"),
    (("watch", "--set", "oops", "--", "true"), 2, "'oops' is not KNOB=VALUE"),
    (("crossover", "small-dense", "--knob", "hue"), 2, "there is no knob 'hue'"),
    (("crossover", "small-dense", "--knob", "graph"), 2, "graph takes on or off; a crossover needs"),
    (("crossover", "small-dense", "--lane", "cpu"), 2, "a crossover compares two lanes"),
    (("tune", "small-dense", "--lane", "gpu:7"), 3, "gpu:7 is not there"),
    (("tune",), 2, "tune a scenario, or a command of your own"),
    (("profile", "small-dense", "--chrome", "/proc/x.json"), 2, "--chrome /proc/x.json cannot be written: "),
    (("profile", "small-dense", "--keep", "/proc/nowhere"), 2, "--keep /proc/nowhere is not a folder that"),
    (("profile", "small-dense", "--html", "x.html"), 2, "--html is for the comparison of two lanes"),
    (("profile", "small-dense", *["--lane", "cpu"] * 3), 2, "two lanes are compared, not 3"),
    (("profile", "one", "other", "--lane", "cpu"), 2, "kept profiles are compared as they are"),
    (("profile", "no-such-run", "other"), 2, "there is no recording no-such-run"),
    (("profile", "/proc/self/task"), 2, "the folder /proc/self/task has no trace"),
    (("profile", "/proc/self/task", "--set", "batch_size=3"), 2, "a kept profile is read as it is"),
    (("profile",), 2, "profile a scenario, or a command of your own"),
    (("sweep", "small-dense", *TWO, "--", "python", "train.py"), 2, "sweep a scenario, or a command"),
    (("sweep", "small-dense", "--over", f"batch_size={','.join(map(str, range(1, 3_000)))}"), 2, "2000 is"),
    (("sweep", "small-dense", *TWO, "--on", "gpu"), 3, "no driver"),
    (("sweep", "small-dense", "--over", "gpus=1,2"), 3, "1xgpu is not there: no driver"),
    (("sweep", "small-dense", "--over", "gpus=1,2", "--on", "gpu:0"), 2, "--on gpu:0 has no number of gpus"),
    (("sweep", "small-dense", "--over", "cpus=1,2", "--on", "cpu,2xcpu"), 2, "--on 2xcpu has no number of cpus"),
    (("sweep", "small-dense", "--over", "cpus=1,2", "--set", "cpus=2"), 2, "there is no knob 'cpus'"),
    (("sweep", "small-dense", *TWO, "--until-ci", "0.1%"), 2, "not a percentage from 1% to below 100%"),
    (("sweep", "small-dense", *TWO, "--record", "/nowhere/x"), 2, "/nowhere/x cannot be written"),
    (("sweep", "--resume"), 2, "there is no sweep in "),
    (("sweep", "--resume", "absent"), 2, "there is no sweep /"),
    (("sweep", "--resume", "x", "--limit", "9", "--slice", "1", *TWO), 2, "leave --over and --limit and --slice"),
    (("sweep", "small-dense", "--limit", "2", "--all", *TWO), 2, "--limit 3 is the least, or a shorter --slice"),
]


@pytest.mark.parametrize(("words", "code", "said"), WRONG, ids=[" ".join(words)[:80] for words, _, _ in WRONG])
def test_wrong_words_get_a_clear_line_and_write_nothing(tfmon, tmp_path, monkeypatch, words, code, said):
    monkeypatch.setenv("TFMON_RECORDINGS", str(tmp_path / "recordings"))
    name, *more = words
    done = tfmon(name, *(["--headless"] if name in ("race", "sweep") else []), *more)
    assert (done.code, done.out) == (code, "")
    assert said in " ".join(done.err.split())
    assert not list(tmp_path.iterdir())


@pytest.mark.process
class TestLanes:
    def test_a_gpu_that_is_not_there_ends_with_the_reason_and_starts_nothing(self, tfmon, tmp_path):
        trace, python = tmp_path / "started", tmp_path / "python"
        python.write_text(f'#!/bin/sh\necho "$@" >> "{trace}"\n')
        python.chmod(0o755)
        done = tfmon("race", "--lane", "cpu", "--lane", "gpu:7", "--python", python, "--json")
        assert done.code == 3
        told = json.loads(done.out)
        assert (told["error"], told["hint"]) == ("gpu:7 is not there: no driver", "install one")
        assert "tfmon: gpu:7 is not there: no driver\n  install one" in done.err
        assert not trace.exists()
        # The same interpreter is started for a lane that can be.
        tfmon("race", "--lane", "cpu", "--python", python, "--headless")
        assert "bootstrap.py" in trace.read_text()

    def test_a_lane_that_dies_without_a_word_is_a_failed_lane_of_a_race_without_a_screen(self, tfmon):
        done = tfmon("race", "small-dense", "--lane", "cpu", "--python", ENDS_AT_ONCE)
        assert done.code == 1
        assert done.err.splitlines() == [
            "tfmon: stdout is not a terminal: going on without the screen (--headless)",
            "tfmon: racing for 30 s; --seconds or --steps says how long",
        ]
        assert done.out.startswith("cpu: the lane exited with code 0")
        assert "\x1b" not in done.out


@pytest.mark.parametrize(
    ("words", "arguments", "said"),
    [
        (("race",), {}, {"seconds": 30.0, "mode": "turns", "slice_s": 0.5, "record": True}),
        (
            ("race", "--seconds", "70", "--mode", "concurrent", "--wait-idle", "2", "--margin", "5%"),
            {"seconds": 70, "mode": "concurrent", "wait_idle": 2, "margin": 0.05},
            {"seconds": 70.0, "mode": "concurrent", "wait_idle": 2.0, "margin": 0.05, "fresh": True},
        ),
        (
            ("race", "--until-ci", "5%", "--slice", "2", "--no-fresh", "--lane", "cpu", "--set", "xla=on"),
            {"until_ci": 0.05, "slice_s": 2, "fresh": False, "lanes": ["cpu"], "settings": {"xla": "on"}},
            {"seconds": None, "slice_s": 2.0, "fresh": False, "lanes": ("cpu",), "settings": ("xla=on",)},
        ),
        (
            ("race", "--record", "x.jsonl", "--", sys.executable, "x.py"),
            {"record": "x.jsonl", "command": [sys.executable, "x.py"]},
            {"record": Path("x.jsonl"), "record_file": Path("x.jsonl"), "seconds": None},
        ),
        (("watch", "--", sys.executable, "x.py"), None, {"seconds": None, "interpreter": Path(sys.executable)}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_the_words_and_the_same_arguments_become_the_same_options(tfmon, monkeypatch, words, arguments, said):
    seen = []

    def program(_self, race_options, purpose):
        assert purpose == Purpose(watched=False, one_lane=words[0] == "watch")
        seen.append(race_options)
        raise UsageError("seen")

    monkeypatch.setattr("tfmon.api.program.Program.__init__", program)
    assert tfmon(words[0], "--json", *words[1:]).code == 2
    (race_options,) = seen
    assert {name: getattr(race_options, name) for name in said} == said
    if arguments is not None:
        with pytest.raises(UsageError, match="seen"):
            api.race(progress=False, **arguments)
        same = [option.name for option in RaceOptions.declared()]
        assert [getattr(seen[1], name) for name in same] == [getattr(race_options, name) for name in same]


@pytest.mark.pythons
@pytest.mark.tensorflow
def test_a_race_prints_one_json_object_with_true_counts_and_its_recording_has_the_same(tfmon, tmp_path):
    file = tmp_path / "race.jsonl"
    words = ("race", "small-dense", "--steps", "50", "--json", "--record", file)
    ran = run_python("-m", "tfmon", *words, folder=ROOT, CUDA_VISIBLE_DEVICES="-1")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told = json.loads(ran.stdout)
    assert (told["schema"], told["scenario"], told["interrupted"]) == (JSON_SCHEMA, "small-dense", None)
    assert told["machine"]["no_gpu"]
    assert [lane["name"] for lane in told["lanes"]] == ["cpu batch_size=10", "cpu batch_size=256"]
    for lane in told["lanes"]:
        assert (lane["state"], lane["error"], lane["measured_steps"]) == ("finished", None, 50)
        assert lane["examples"] == lane["steps"] * lane["knobs"]["batch_size"] > lane["measured_steps"]
        assert lane["loss"]["last"] > 0
        assert lane["private_bytes"] > 0
        assert lane["missing"]["gpu_busy_pct"] == "no GPU in this lane"
    assert tfmon("replay", file, "--json").out == ran.stdout
    assert json.loads(tfmon("export", file, "--json").out)["result"] == told
    with Recording(file) as recording:
        ended = [event for event in recording.events() if isinstance(event, LaneEnded)]
    assert [(event.exit_code, event.requested) for event in ended] == [(0, False)] * 2

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
from support.recordings import RECORDED

import tfmon as api
from tfmon import __version__
from tfmon.api.options import Purpose, RaceOptions
from tfmon.cli.main import COMMANDS, cli
from tfmon.errors import UsageError
from tfmon.model.header import JSON_SCHEMA

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "PYTHONPATH": str(ROOT)}
ENDS_AT_ONCE = str(shutil.which("true"))
"""As an interpreter: a lane that ends before it says a word."""


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
@pytest.mark.parametrize("words", [("list",), ("export", "RUN", "--json")])
def test_output_that_cannot_be_written_is_one_line_and_code_1(words):
    with Path("/dev/full").open("w") as full:
        process = start(*(RECORDED if word == "RUN" else word for word in words), stdout=full)
        _, told = process.communicate()
    assert (process.returncode, told) == (1, "tfmon: standard output cannot be written: No space left on device\n")


@pytest.mark.process
def test_a_race_whose_result_cannot_be_printed_says_where_it_is(tfmon, scripted, monkeypatch, tmp_path):
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        path = tmp_path / "race.jsonl"
        done = tfmon("race", "small-dense", "--lane", "cpu", "--seconds", "1", "--json", "--record", path)
    assert done.code == 1
    problem = "tfmon: standard output cannot be written: No space left on device"
    assert done.err.splitlines()[-2:] == [problem, f"  the result is in {path}"]


LOADED = f'''
import sys
from tfmon.cli.main import COMMANDS, cli
from tfmon.errors import UsageError
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
    assert set(lines[4]).isdisjoint(
        {"tensorflow", "keras", "textual", "rich", "numpy", "scipy", "psutil", "pynvml"}
    )
    assert not set(lines[5]) & {"tensorflow", "keras", "textual"}


@pytest.mark.process
def test_a_reader_that_leaves_early_is_no_error():
    read, write = os.pipe()
    os.close(read)
    process = start("list", stdout=write)
    os.close(write)
    assert process.communicate()[1] == ""
    assert process.returncode == 0


def test_list_names_the_scenarios_and_show_says_what_is_trained_and_what_the_knobs_take(tfmon):
    assert re.search(r"^  small-dense +A small dense net", tfmon("list").out, re.MULTILINE)
    rows = json.loads(tfmon("list", "--json").out)
    assert set(rows[0]) == {"name", "title", "origin", "path"}
    assert "large-dense" in {row["name"] for row in rows}
    shown = tfmon("show", "small-dense").out
    assert "batch_size=10" in shown
    assert "off, auto or a whole number from 1 to 1024" in shown
    assert str(ROOT / "scenarios" / "small_dense.py") in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("race", "smal-dense"), "did you mean small-dense"),
        (("race", "./absent.py"), "there is no file ./absent.py"),
        (("race", "x/" * 3_000), "there is no file x/x/"),
        (("small-dense",), "tfmon race small-dense"),
        (("rase",), "did you mean `tfmon race`"),
        (("race", "--fast"), "--fast"),
        (("race", "--record", "a", "--no-record"), "--record and --no-record exclude each other"),
        (("race", "--seconds", "nan"), "'--seconds': 'nan' is not a time in seconds above 0, a year at most"),
        (("race", "--wait-idle", "soon"), "'soon' is not a time in minutes from 0 to 10080"),
        (("race", "--until-ci", "2.4%"), "5%; equal processes differ, so one process of each lane can tell no"),
        (("race", "--until-ci", "5%", "--mode", "concurrent"), "--until-ci needs --mode turns"),
        (("race", "--steps", "0"), "'0' is not a whole number from 1"),
        (("race", "--theme", "nrod"), "'nrod' is not one of"),
        (("watch",), "name the command: tfmon watch -- python train.py"),
        (("race", "--"), "after -- comes a command"),
        (("race", "--steps", 5, "--", "python", "x.py"), "--steps is for scenarios"),
        (("race", "--", "train.py"), "a script needs its Python: tfmon race -- python train.py"),
        (("watch", "--", "no-such-program"), "no-such-program is not a program that can be run"),
        (("watch", "--set", "oops", "--", "true"), "'oops' is not KNOB=VALUE"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_wrong_words_get_a_clear_line_and_exit_code_2(tfmon, words, said):
    at = 1 if words[0] == "race" else len(words)
    done = tfmon(*words[:at], *(["--headless"] if words[0] == "race" else []), *words[at:])
    assert (done.code, done.out) == (2, "")
    assert said in " ".join(done.err.split())


@pytest.mark.process
def test_a_gpu_that_is_not_there_ends_with_the_reason_and_starts_nothing(tfmon, tmp_path):
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


@pytest.mark.parametrize(
    ("words", "arguments", "said"),
    [
        (("race",), {}, {"seconds": 30.0, "mode": "turns", "slice_s": 0.5, "record": True}),
        (("race", "--steps", "5", "--no-record"), {"steps": 5, "record": False}, {"steps": 5, "seconds": None}),
        (
            ("race", "--seconds", "70", "--mode", "concurrent", "--wait-idle", "2", "--margin", "5%"),
            {"seconds": 70, "mode": "concurrent", "wait_idle": 2, "margin": 0.05},
            {"seconds": 70.0, "mode": "concurrent", "wait_idle": 2.0, "margin": 0.05, "fresh": True},
        ),
        (
            ("race", "--until-ci", "5%", "--slice", "2", "--no-fresh", "--no-record"),
            {"until_ci": 0.05, "slice_s": 2, "fresh": False, "record": False},
            {"until_ci": 0.05, "seconds": None, "slice_s": 2.0, "fresh": False, "record": False},
        ),
        (
            ("race", "--lane", "cpu", "--set", "xla=on"),
            {"lanes": ["cpu"], "settings": {"xla": "on"}},
            {"lanes": ("cpu",), "settings": ("xla=on",)},
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

    def program(_self, race_options, purpose, tell=None):
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


@pytest.mark.process
def test_a_lane_that_dies_without_a_word_is_a_failed_lane_of_a_race_without_a_screen(tfmon):
    done = tfmon("race", "small-dense", "--lane", "cpu", "--python", ENDS_AT_ONCE)
    assert done.code == 1
    assert done.err.splitlines() == [
        "tfmon: stdout is not a terminal: going on without the screen (--headless)",
        "tfmon: racing for 30 s; --seconds or --steps says how long",
    ]
    assert done.out.startswith("cpu: the lane exited with code 0")
    assert "\x1b" not in done.out


@pytest.mark.pythons
@pytest.mark.tensorflow
def test_a_race_prints_one_json_object_with_true_counts_and_its_recording_has_the_same(tfmon, tmp_path):
    file = tmp_path / "race.jsonl"
    process = start("race", "small-dense", "--steps", "50", "--json", "--record", file)
    out, err = process.communicate()
    assert process.returncode == 0, out + err
    told = json.loads(out)
    assert (told["schema"], told["scenario"], told["interrupted"]) == (JSON_SCHEMA, "small-dense", None)
    assert told["machine"]["no_gpu"]
    assert [lane["name"] for lane in told["lanes"]] == ["cpu batch_size=10", "cpu batch_size=256"]
    for lane in told["lanes"]:
        assert (lane["state"], lane["error"], lane["measured_steps"]) == ("finished", None, 50)
        assert lane["examples"] == lane["steps"] * lane["knobs"]["batch_size"] > lane["measured_steps"]
        assert lane["loss"]["last"] > 0
        assert lane["private_bytes"] > 0
        assert lane["missing"]["gpu_busy_pct"] == "no GPU in this lane"
    assert tfmon("replay", file, "--json").out == out
    assert json.loads(tfmon("export", file, "--json").out)["result"] == told

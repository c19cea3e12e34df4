"""`tfmon crossover`, from the words to the answer."""

from __future__ import annotations

import json
import subprocess
import sys

import pexpect
import pytest

FINE = ("fine-grained-ops", "--knob", "size", "--slice", "0.2")


def crossover(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tfmon", "crossover", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)


@pytest.mark.tf
def test_the_lanes_are_raced_over_the_values_and_the_answer_is_one_json_object():
    done = crossover(*FINE, "--from", "16", "--to", "32", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["scenario"], found["knob"]) == ("fine-grained-ops", "size")
    assert [lane["title"] for lane in found["lanes"]] == ["cpu graph=off", "cpu graph=on"]
    assert [place["value"] for place in found["values"]] == [16, 32]
    for place in found["values"]:
        assert place["pairs"] >= 6
        assert place["ratio_ci95"][0] <= place["ratio"] <= place["ratio_ci95"][1] < 1
        assert place["first"]["examples_per_s"] < place["second"]["examples_per_s"]
    assert found["crossings"] == [] and "cpu graph=on is faster than cpu graph=off throughout" in found["text"]


@pytest.mark.tf
def test_ctrl_c_ends_it_with_what_it_has():
    words = ["-m", "tfmon", "crossover", "small-dense", "--slice", "0.2"]
    terminal = pexpect.spawn(sys.executable, words, encoding="utf-8", timeout=60, dimensions=(40, 120))
    terminal.expect("batch_size=2")
    terminal.sendintr()
    terminal.expect("stopped; these are the values it had")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 130


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["small-dense", "--knob", "hue"], "there is no knob 'hue'"),
        (["small-dense", "--knob", "graph"], "graph takes on or off; a crossover needs a knob that is a number"),
        (["small-dense", "--lane", "cpu"], "a crossover compares two lanes"),
        (["small-dense", "--from", "5", "--to", "7"], "fewer than two powers of two from 5 to 7"),
        (["nowhere"], "there is no scenario"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(words, said):
    done = crossover(*words)
    assert done.returncode == 2
    assert said in done.stderr and "Traceback" not in done.stderr

"""`tfmon tune`, from the words to the best settings."""

from __future__ import annotations

import json
import subprocess
import sys

import pexpect
import pytest

SLOW_INPUT = '''"""A step that takes no time, and examples that take a millisecond each."""

import time

import numpy as np
import tensorflow as tf
from tfmon.trainer import Scenario


def slow(x):
    time.sleep(0.001)
    return x


class SlowInput(Scenario):
    batch_size = 64
    without = ("graph", "xla", "mixed_precision", "sync_every_step", "threads")
    contrast = ("prefetch=off", "prefetch=auto")

    def data(self):
        return np.zeros((64, 8), "float32"), np.zeros(64, "int32")

    def prepare(self, x, y):
        return tf.ensure_shape(tf.numpy_function(slow, [x], tf.float32), [8]), y

    def model(self):
        model = tf.keras.Sequential([tf.keras.Input((8,)), tf.keras.layers.Dense(2, activation="softmax")])
        model.compile("adam", "sparse_categorical_crossentropy")
        return model
'''


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "slow_input.py"
    path.write_text(SLOW_INPUT)
    return str(path)


def tune(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tfmon", "tune", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.tf
def test_a_slow_input_is_found_and_mended_and_the_answer_is_one_json_object(scenario):
    done = tune(scenario, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["scenario"], found["lane"]["device"]) == ("slow-input", "cpu")
    (cache,) = found["attempts"]
    assert cache["against"] == "input" and cache["pairs"] >= 6
    assert (cache["tried"], cache["settings"]) == ("cache on", {"cache": True})
    assert cache["outcome"] == "kept" and cache["gain_ci95"][0] > 2
    assert found["best"]["gain"] > 2 and any(".cache()" in line for line in found["best"]["code"])
    assert {knob: found["settings"][knob] for knob in found["best"]["settings"]} == found["best"]["settings"]


@pytest.mark.tf
def test_ctrl_c_ends_it_with_what_it_has(scenario):
    words = ["-m", "tfmon", "tune", scenario, "--set", "parallel_calls=off"]
    terminal = pexpect.spawn(sys.executable, words, encoding="utf-8", timeout=90, dimensions=(40, 140))
    terminal.expect("trying [a-z ]+ auto: [1-9]")
    terminal.sendintr()
    terminal.expect("ended early: stopped")
    terminal.expect("best: ")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 130


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["small-dense", "--lane", "tpu"], "there is no device 'tpu'"),
        (["small-dense", "--set", "hue=1"], "there is no knob 'hue'"),
        (["nowhere"], "there is no scenario"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(words, said):
    done = tune(*words)
    assert done.returncode == 2
    assert said in done.stderr and "Traceback" not in done.stderr


def test_a_gpu_that_is_not_there_has_its_own_exit_code():
    done = tune("small-dense", "--lane", "gpu:7")
    assert done.returncode == 3 and "Traceback" not in done.stderr

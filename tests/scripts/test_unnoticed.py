"""A script prints and returns the same with tfmon's hooks as without them, whatever fails in it, or in them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import HANGS_S

pytestmark = [pytest.mark.tensorflow, pytest.mark.trainer]

HERE = Path(__file__).parent
CHANGES = (
    (r"^.*(?:[IWE]0000 00:00|log messages before absl|tensorflow/core/|Could not find cuda).*\n", ""),
    (r"0x[0-9a-f]+", "ADDRESS"),
    (r"\b\d+ms\b|\b\d+s\b", "TIME"),
    (r"_\d+\b", "_NUMBER"),
    (r"__autograph_generated_file\w+", "GENERATED"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+", "NOW"),
)
"""What differs between two runs without tfmon: addresses, times, numbers of functions, lines of its log."""


def masked(text: str) -> str:
    for pattern, by in CHANGES:
        text = re.sub(pattern, by, text, flags=re.MULTILINE)
    return text


LOGS_PLACEMENT = """
import keras, numpy as np, tensorflow as tf

tf.debugging.set_log_device_placement(True)
keras.mixed_precision.set_global_policy("mixed_bfloat16")
padded = np.zeros((256, 64), "int32")
padded[:, :9] = np.arange(256 * 9).reshape(256, 9)
layers = [keras.layers.Embedding(20_000, 16), keras.layers.Flatten(), *map(keras.layers.Dense, (64, 1))]
model = keras.Sequential([keras.Input((64,), dtype="int32"), *layers])
model.compile("adam", "mse")
model.fit(tf.constant(padded), tf.zeros((256, 1)), batch_size=8, epochs=2, verbose=0)
raise SystemExit(1)
"""
"""It has causes whose cost tfmon measures with operations, which the log would show."""


@pytest.mark.parametrize("logs", [False, True])
def test_output_errors_and_exit_code_are_those_without_tfmon(watch, script, tmp_path, logs):
    path = Path(script(LOGS_PLACEMENT)) if logs else HERE / "noisy.py"
    line = f"cd {tmp_path} && {sys.executable} {path} >{{0}}.out 2>{{0}}.err"
    alone = subprocess.run(["/bin/sh", "-c", line.format("alone")], timeout=HANGS_S, check=False)
    race = watch("/bin/sh", "-c", line.format("watched"))
    race.until(lambda: race.lane.end.event is not None, "the end")
    assert race.lane.end.event.exit_code == alone.returncode == 1
    assert race.lane.totals.steps > 10, "it was watched"
    for stream in ("out", "err"):
        one, other = ((tmp_path / f"{name}.{stream}").read_text() for name in ("alone", "watched"))
        assert masked(other) == masked(one)
        assert "tfmon" not in other.replace(str(HERE.parents[1]), "")
    assert ("/device:CPU:0" if logs else "KeyboardInterrupt") in one


REPORTS = """
import os, sys, time
from tfmon import report

def train(steps):
    for _ in range(steps):
        time.sleep(0.002)
        report.step(examples=32)
"""


def test_a_script_that_closes_the_channel_is_told_with_its_steps_and_trains_on(watch, script, tmp_path):
    text = "train(400)\nos.closerange(3, 256)\nwhile not os.path.exists(sys.argv[1]):\n    train(20)\n"
    race = watch(script(REPORTS + text + "print('trained on')\n"), str(tmp_path / "told"))
    race.until(lambda: "steps" in race.lane.script.not_measured, "the reason")
    (tmp_path / "told").touch()
    steps = race.lane.totals.steps  # without the steps of an unsent window
    assert 100 < steps <= 400
    assert race.lane.script.not_measured["steps"] == f"the script closed tfmon's channel after {steps} steps"
    race.until(lambda: race.lane.end.event is not None, "the end")
    assert (race.lane.end.event.exit_code, race.lane.trouble) == (0, None)
    assert race.lane.end.event.output_tail[-1] == "trained on"


@pytest.mark.parametrize("name", ["tfmon.py", "tfmon/__init__.py"])
def test_a_module_named_tfmon_is_the_scripts_and_the_lane_says_so(watch, script, tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("OWN = 5\n")
    (tmp_path / "jax.py").touch()  # any library that is watched, and this one takes no time to load
    race = watch(script("import jax\nfrom tfmon import OWN\nprint('own', OWN)\n"))
    race.until(lambda: race.lane.end.event is not None, "the end")
    assert (race.lane.end.event.exit_code, race.lane.end.event.output_tail[-1]) == (0, "own 5")
    reason = "the script has a module named tfmon of its own, so it is not watched"
    assert race.lane.script.not_measured["steps"] == reason

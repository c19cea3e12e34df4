"""Differences between lanes of one script: requested settings, and defaults that one lane resolves differently."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes import run_python

from tfmon.model.lane_state import DONE, FAILED

pytestmark = [pytest.mark.tensorflow, pytest.mark.trainer]

FIT = """
import keras
import numpy as np

keras.utils.set_random_seed(1)
x = np.random.rand(320, 8).astype("float32")
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4), keras.layers.Dense(1)])
model.compile("sgd", "mse")

class Calls(keras.callbacks.Callback):
    calls = 0
    def on_train_batch_end(self, batch, logs=None):
        Calls.calls += 1

model.fit(x, x[:, :1], epochs=100, verbose=0, callbacks=[Calls()])
import tensorflow as tf
threads = tf.config.threading
print("told", model.jit_compile, Calls.calls, model.layers[0].compute_dtype,
      threads.get_intra_op_parallelism_threads(), threads.get_inter_op_parallelism_threads())
"""
OWN_THREADS = "import tensorflow as tf\ntf.config.threading.set_intra_op_parallelism_threads(2)\n"
LOOP = """
import tensorflow as tf

weight = tf.Variable(1.0)
optimizer = tf.keras.optimizers.SGD(0.001)
while True:
    with tf.GradientTape() as tape:
        loss = weight ** 2
    optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])
"""


INTERPRETER = """
import os, sys, time
from tfmon import report

with open(f"{__file__}.{os.environ['TFMON_LANE']}", "w") as file:
    file.write(sys.prefix)
for _ in range(600):
    time.sleep(0.002)
    report.step(examples=1)
"""


def end(race) -> str:
    race.until(lambda: race.lane.end.event is not None, "the end")
    return next((line for line in race.lane.end.event.output_tail if line.startswith("told")), "")


@pytest.mark.slow
def test_levers_are_applied_to_any_script_and_without_them_nothing_is_changed(watch, script):
    path = script(FIT)
    plain = watch(path)
    assert end(plain) == "told False 1000 float32 0 0"
    assert {"xla", "mixed_precision"} <= plain.lane.settings.keys(), "what Keras chose is told"
    assert plain.lane.script.resolved["seed"] == "1", "so that losses of two lanes are comparable"
    levers = dict(xla=True, steps_per_execution=5, mixed_precision="bfloat16", threads=1, inter_threads=2)
    asked = watch(path, **levers)
    assert end(asked) == "told True 200 bfloat16 1 2"
    assert asked.lane.phase == DONE and asked.lane.totals.steps == 1000
    assert levers.items() <= asked.lane.settings.items()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "settings", "words"),
    [
        (LOOP, {"xla": True}, "xla was requested, and the script compiles no model of Keras before it trains"),
        (LOOP, {"allocator": "cuda_malloc_async"}, "allocator is for a lane with a GPU"),
        (OWN_THREADS + LOOP, {"threads": 1}, "threads=1 is not in effect: the script sets it to 2 itself"),
    ],
    ids=["no compile", "no GPU", "its own"],
)
def test_a_lever_that_is_not_in_effect_ends_the_lane_and_says_so(watch, script, text, settings, words):
    race = watch(script(text), **settings)
    end(race)
    assert race.lane.phase == FAILED and race.lane.trouble.message.startswith(words)


def test_each_lane_has_its_own_interpreter(script, tmp_path):
    path, pythons = script(INTERPRETER), [str(tmp_path / name / "bin" / "python") for name in ("one", "two")]
    for name in ("one", "two"):
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / name)], check=True)

    def race(*command: str) -> subprocess.CompletedProcess:
        lanes = [f"--lane=cpu,python={python}" for python in pythons]
        words = ["-m", "tfmon", "race", "--json", "--no-record", "--in-place", *lanes, "--"]
        return run_python(*words, *command)

    raced = race("python", path)
    assert raced.returncode == 0, raced.stderr
    lanes = json.loads(raced.stdout)["lanes"]
    assert [lane["command"].split()[0] for lane in lanes] == pythons
    ran = [Path(f"{path}.{lane['id']}").read_text() for lane in lanes]
    assert ran == [str(tmp_path / "one"), str(tmp_path / "two")]
    refused = race("/bin/echo")
    assert refused.returncode and "is for a command that begins with a Python" in refused.stderr


BATCHES, EPOCHS = 20, 2
MIRRORED = f"""
import numpy as np
import tensorflow as tf
names = [device.name for device in tf.config.list_logical_devices("CPU")]
strategy = tf.distribute.MirroredStrategy(names)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((8,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
x = np.zeros((32 * {BATCHES}, 8), "float32")
model.fit(x, x[:, 0], batch_size=32, epochs={EPOCHS}, verbose=0)
print("told", len(names))
"""


@pytest.mark.slow
def test_a_strategy_of_a_script_trains_on_the_logical_devices_of_its_lane_and_is_counted(watch, script):
    race, steps = watch(script(MIRRORED), device="2xcpu"), BATCHES * EPOCHS
    assert end(race) == "told 2"
    assert (race.lane.totals.steps, race.lane.totals.examples) == (steps, 32 * steps)

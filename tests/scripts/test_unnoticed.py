"""A script prints and returns the same with tfmon's hooks as without them, whatever fails in it, or in them."""

from __future__ import annotations

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


def test_output_errors_and_exit_code_are_those_without_tfmon(watch, tmp_path):
    line = f"cd {tmp_path} && {sys.executable} {HERE / 'noisy.py'} >{{0}}.out 2>{{0}}.err"
    alone = subprocess.run(["/bin/sh", "-c", line.format("alone")], timeout=HANGS_S, check=False)
    race = watch("/bin/sh", "-c", line.format("watched"))
    race.until(lambda: race.lane.end.event is not None, "the end")
    assert race.lane.end.event.exit_code == alone.returncode == 1
    assert race.lane.totals.steps > 10, "it was watched"
    for stream in ("out", "err"):
        one, other = ((tmp_path / f"{name}.{stream}").read_text() for name in ("alone", "watched"))
        assert masked(other) == masked(one)
        assert "tfmon" not in other.replace(str(HERE.parents[1]), "")
    assert "KeyboardInterrupt" in one


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
    steps = race.lane.totals.steps  # those of a window that was not sent yet are not among them
    assert 100 < steps <= 400
    assert race.lane.script.not_measured["steps"] == f"the script closed tfmon's channel after {steps} steps"
    race.until(lambda: race.lane.end.event is not None, "the end")
    assert (race.lane.end.event.exit_code, race.lane.trouble) == (0, None)
    assert race.lane.end.event.output_tail[-1] == "trained on"


ITERATORS = """
import gc
import keras, numpy as np
from tensorflow.python.data.ops.iterator_ops import OwnedIterator

class Count(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 0:
            print("iterators", sum(type(one) is OwnedIterator for one in gc.get_objects()))

model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.zeros((64, 4)), np.zeros((64, 1)), batch_size=8, epochs=4, verbose=0, callbacks=[Count()])
"""


@pytest.mark.slow
def test_the_iterator_of_an_epoch_is_freed_when_keras_lets_it_go(watch, script):
    path = script(ITERATORS)
    alone = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=HANGS_S, check=True)
    race = watch(path)
    race.until(lambda: race.lane.end.event is not None, "the end")
    assert race.lane.totals.steps == 32, "it was watched"
    printed = [line for line in race.lane.end.event.output_tail if line.startswith("iterators")]
    assert printed == alone.stdout.split("\n")[:4] == ["iterators 1"] * 4


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


@pytest.mark.slow
def test_parameter_servers_pull_and_train_as_without_tfmon(watch, script):
    servers = """
import keras, os, tensorflow as tf

import socket
def port():
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]

spec = tf.train.ClusterSpec({job: [f"localhost:{port()}"] for job in ("worker", "ps")})
servers = [tf.distribute.Server(spec, job, 0, protocol="grpc") for job in ("worker", "ps")]
resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc")
strategy = tf.distribute.experimental.ParameterServerStrategy(resolver)
coordinator = tf.distribute.experimental.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    weights = tf.Variable(tf.ones((4, 1)))
    optimizer = keras.optimizers.SGD(0.01)

@tf.function
def step(batches):
    def replica(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ weights) ** 2)
        weights.assign_sub(0.01 * tape.gradient(loss, weights))
        return loss
    return strategy.run(replica, (next(batches),))

rows = coordinator.create_per_worker_dataset(lambda: tf.data.Dataset.from_tensors(tf.ones((8, 4))).repeat())
batches = iter(rows)
for _ in range(20):
    coordinator.schedule(step, args=(batches,))
coordinator.join()
print("trained", flush=True)
os._exit(0)
"""
    race = watch(script(servers))
    race.until(lambda: race.lane.end.event is not None, "the end")
    assert race.lane.end.event.output_tail[-1] == "trained", race.lane.end.event.output_tail[-5:]
    assert race.lane.script.step.startswith("a thread of TensorFlow: "), "no line of the script is on its stack"


@pytest.mark.slow
def test_a_wait_that_cannot_be_measured_is_not_zero_but_has_a_reason(watch, script):
    fits = """
import keras, numpy as np, tensorflow as tf
tf.config.experimental.enable_op_determinism()
keras.utils.set_random_seed(1)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x = np.ones((320, 4), "float32")
model.fit(x, x[:, :1], batch_size=32, epochs=100, verbose=0)
"""
    race = watch(script(fits))
    race.until(lambda: race.lane.end.event is not None, "the end")
    assert (race.lane.end.event.exit_code, race.lane.totals.steps) == (0, 1000)
    assert race.lane.script.not_measured["input"] == "determinism is on"

"""A script on several devices keeps its own strategy, and sees the devices of its lane."""

import json
import sys
from pathlib import Path

import pytest
from support.processes import run_python

from tfmon.system.lane_pipes import VARIABLE as PIPES
from tfmon.system.lane_pipes import LanePipes, read_pipes

ROOT = Path(__file__).parents[2]
BATCHES, EPOCHS = 20, 2
TRAINS = f"""
import numpy as np
import tensorflow as tf
names = [device.name for device in tf.config.list_logical_devices("CPU")]
print("devices", len(names), flush=True)
strategy = tf.distribute.MirroredStrategy(names)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((8,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
x = np.zeros((32 * {BATCHES}, 8), "float32")
model.fit(x, x[:, 0], batch_size=32, epochs={EPOCHS}, verbose=0)
"""


@pytest.mark.parametrize(
    ("device", "kind", "devices"), [("cpu", "cpu", 1), ("2xcpu", "cpu", 2), ("8xgpu", "gpu", 8)]
)
def test_a_script_is_told_its_devices(device, kind, devices):
    pipes = read_pipes({PIPES: LanePipes(3, 4, 5, "token", device).text()})
    assert (pipes.kind, pipes.devices) == (kind, devices)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.tensorflow
def test_a_strategy_of_a_script_trains_on_the_logical_devices_of_its_lane_and_is_counted(tmp_path):
    (tmp_path / "train.py").write_text(TRAINS)
    lanes = ("--lane", "cpu", "--lane", "2xcpu", "--json", "--record", "one.jsonl")
    words = ("-m", "tfmon", "race", *lanes, "--", sys.executable, "train.py")
    done = run_python(*words, folder=tmp_path, PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stderr
    lanes = json.loads(done.stdout)["lanes"]
    assert [lane["device"] for lane in lanes] == ["cpu", "2xcpu"]
    steps = BATCHES * EPOCHS
    assert [(lane["steps"], lane["examples"]) for lane in lanes] == [(steps, 32 * steps)] * 2
    printed = (tmp_path / "one.jsonl").read_text()
    assert "devices 1" in printed and "devices 2" in printed

"""Scenarios that go wrong in real TensorFlow children: each is told in words, with the line in the user's file."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from trainer.racing import Race

from tfmon.model.events import LaneEnded
from tfmon.model.lane_state import FAILED

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

SOURCE = '''
"""Goes wrong."""
import os, resource
import numpy as np
import tensorflow as tf
from tfmon.trainer import Scenario


class Wrong(Scenario):
    batch_size = 4

    def data(self):
        {data}
        return np.zeros((64, 3), np.float32)

    def batches(self, examples, batch_size):
        {batches}
        return examples.repeat().batch(batch_size)

    def model(self):
        {model}

    def step(self, model):
        variable = tf.Variable(0.0)

        def train(x):
            {step}
            return tf.reduce_sum(variable.assign_add(1.0))

        return train
'''
LIMIT = (
    "used = int(open('/proc/self/statm').read().split()[0]) * 4096\n"
    "        before, most = resource.getrlimit(resource.RLIMIT_AS)\n"
    "        resource.setrlimit(resource.RLIMIT_AS, (used + 2**32, most))\n"
    "        try:\n            np.ones(2**31)\n"
    "        finally:\n            resource.setrlimit(resource.RLIMIT_AS, (before, most))"
)
"""Only as long as the one array is requested: TensorFlow's own threads end the process when they get no memory."""
SLOW_FAULT = (
    "def fail(x):\n            if x[0] > 40: raise ValueError('row 41 is bad')\n            return x\n"
    "        rows = tf.data.Dataset.range(64).map(lambda n: tf.cast([n, n, n], tf.float32))\n"
    "        examples = rows.map(lambda x: tf.ensure_shape(tf.numpy_function(fail, [x], tf.float32), [3]))"
)
FAULTS = {
    "pipeline": ({"batches": SLOW_FAULT}, "scenario", r"row 41 is bad"),
    "memory": ({"data": LIMIT}, "out_of_memory", r"out of memory: .*wrong\.py:\d+: .*MemoryError"),
    "exit": ({"model": "print('last words', flush=True); os._exit(9)"}, "error", r"exited with code 9"),
}


@pytest.fixture(scope="module")
def races(tmp_path_factory) -> Iterator[dict[str, Race]]:
    """All of them at once: most of their time they load TensorFlow."""
    started = {}
    for name, (parts, _, _) in FAULTS.items():
        path = tmp_path_factory.mktemp(name) / "wrong.py"
        path.write_text(SOURCE.format(**{part: "pass" for part in ("data", "batches", "model", "step")} | parts))
        started[name] = Race(path, batch_size=4)
    yield started
    for race in started.values():
        race.lanes.stop()


@pytest.mark.parametrize("name", FAULTS)
def test_what_went_wrong_is_told_in_words(races, name):
    _, kind, message = FAULTS[name]
    race = races[name]
    end = race.until_event(LaneEnded)
    lane = race.lane
    assert (lane.phase, lane.trouble.kind) == (FAILED, kind)
    assert re.search(message, lane.trouble.message), lane.trouble.message
    assert end.exit_code == (9 if name == "exit" else 1)
    if name == "memory":
        assert "b lowers the batch size" in lane.trouble.hint
    if name == "exit":
        assert "last words" in end.output_tail

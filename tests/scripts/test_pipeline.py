"""Keys change the pipeline that a script wrote itself: at its next epoch, without a change of what it trains."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tfmon.model.events import LanePrinted
from tfmon.model.lane_events import KnobApplied, KnobOffered, KnobRefused, Window

pytestmark = [pytest.mark.tensorflow, pytest.mark.trainer]

LOOP = """
import itertools, sys, time
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(1)
x = np.arange(20 * 32 * 4, dtype="float32").reshape(-1, 4) / 2560
data = tf.data.Dataset.from_tensor_slices(x).shuffle(640, seed=3).batch(32)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD(0.01)

@tf.function
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x) - 1))
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return loss

def train(batches):
    order = 0.0
    for number, x in enumerate(batches):
        loss = step(x)
        order = order * 1.001 + float(x[0, 0])
        time.sleep(0.002)
    print(f"epoch {order:.5f} {float(loss):.6f} {int(optimizer.iterations)}", flush=True)
"""
EPOCHS = "for _ in range(int(sys.argv[1])): train(data)"
ONE_ITERATOR = "train(data.repeat())"


def epochs(lines: list[str]) -> list[str]:
    return [line for line in lines if re.match(r"epoch ", line)]


def test_a_change_at_the_next_epoch_keeps_order_and_weights(watch, script):
    path = script(LOOP + EPOCHS)
    race = watch(path, "10000")
    race.until(lambda: race.lane.steady.windows >= 2, "steady windows")
    offered = {event.knob: event.value for event in race.of(KnobOffered)}
    assert (offered["prefetch"], offered["input_threads"]) == ("off", "auto")
    for knob, value in (("prefetch", 2), ("input_threads", 1), ("prefetch", "off"), ("prefetch", "auto")):
        before = len(race.of(KnobApplied))
        race.lanes.set_knob(race.name, knob, value)
        race.until(lambda before=before: len(race.of(KnobApplied)) > before, f"{knob} {value}")
        applied = race.of(KnobApplied)[-1]
        assert (applied.knob, applied.value) == (knob, value)
        assert applied.step % 20 == 1, "the first step of an epoch"
    last = race.of(KnobApplied)[-1].step
    race.until(lambda: race.of(Window)[-1].step > last + 40, "two epochs more")
    assert race.lane.settings["prefetch"] == "auto"
    watched = epochs([line for event in race.of(LanePrinted) for line in event.lines])
    alone = subprocess.run([sys.executable, path, str(len(watched))], capture_output=True, text=True, check=True)
    assert watched == epochs(alone.stdout.splitlines())


def test_the_command_line_sets_it_and_an_endless_iterator_refuses_it(watch, script):
    race = watch(script(LOOP + ONE_ITERATOR), prefetch=2)
    race.until(lambda: race.lane.steady.windows >= 1, "steady windows")
    assert race.lane.settings["prefetch"] == 2
    race.lanes.set_knob(race.name, "prefetch", "auto")
    assert "one iterator for ever" in race.until_event(KnobRefused).reason

"""Keys change the pipeline of a script at its next epoch, and not the data."""

import ctypes
import functools
import itertools
import os
import signal
import subprocess
import sys
import time

import pytest
from support.processes import run_python

from tfmon.hooks.pipeline_knobs import Frees
from tfmon.hooks.sources import nothing
from tfmon.model.events import LanePrinted
from tfmon.model.lane_events import KnobApplied, KnobOffered, KnobRefused, Window

pytestmark = [pytest.mark.tensorflow, pytest.mark.trainer, pytest.mark.slow]

LOOP = """
import itertools, os, sys, time
import tensorflow as tf
import keras
import numpy as np

keras.utils.set_random_seed(1)
x = np.arange(20 * 32 * 4, dtype="float32").reshape(-1, 4) / 2560
data = tf.data.Dataset.from_tensor_slices(x).shuffle(640, seed=3).batch(32)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD(0.01)

traced = []

@tf.function
def step(x):
    traced.append(x.shape[0])
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x) - 1))
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return loss

def train(batches, sleep=0.002, lines=0):
    order = 0.0
    for number, x in enumerate(batches):
        loss = step(x)
        for value in x[:, 0].numpy():
            order = order * 1.001 + float(value)
        time.sleep(sleep)
        if lines and number % lines == lines - 1:
            print(f"epoch {order:.5f} {float(loss):.6f} {int(optimizer.iterations)}", flush=True)
    print(f"epoch {order:.5f} {float(loss):.6f} {int(optimizer.iterations)}", flush=True)
"""
EPOCHS = """
for _ in range(int(sys.argv[1])):
    train(data)
    if os.path.exists(sys.argv[-1]):
        break
print('traced', *traced)
"""
VALIDATES = """
other = keras.optimizers.SGD(0.5)
held = tf.data.Dataset.from_tensor_slices(x).batch(32)
for _ in range(100_000):
    for number, batch in enumerate(data):
        step(batch)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(batch) - 1))
        other.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        time.sleep(0.002)
        if number % 7 == 6:
            print("held", *{int(tf.shape(one)[0]) for one in held}, flush=True)
"""
GENERATOR = """
def count():
    number = 0
    while True:
        yield [number / 1_000] * 4
        number += 1

spec, seen = tf.TensorSpec((4,), tf.float32), []
for x in tf.data.Dataset.from_generator(count, output_signature=spec).batch(8):
    step(x)
    print("got", *(round(float(value) * 1_000) for value in x[:, 0]), flush=True)
    rate = float(optimizer.learning_rate)
    if seen[-1:] != [rate]:
        seen.append(rate)
        print("rate", round(rate, 6), flush=True)
    time.sleep(0.05)
"""


def printed(race, word: str = "epoch") -> list[str]:
    """Return the lines of a script that begin with a word; TensorFlow prints others."""
    return [line for event in race.of(LanePrinted) for line in event.lines if line.startswith(f"{word} ")]


def change(race, knob: str, value: object) -> KnobApplied:
    """Request a value, and return when it is in effect."""
    before = len(race.of(KnobApplied))
    race.lanes.set_knob(race.name, knob, value)
    race.until(lambda: len(race.of(KnobApplied)) > before or race.of(KnobRefused), f"{knob} {value}")
    assert not race.of(KnobRefused), race.of(KnobRefused)[-1].reason
    applied = race.of(KnobApplied)[-1]
    assert (applied.knob, applied.value) == (knob, value)
    return applied


def test_changes_at_the_next_epoch_keep_order_and_weights_and_every_example_is_counted(watch, script, tmp_path):
    enough = tmp_path / "enough"
    path = script(LOOP + EPOCHS)
    race = watch(path, "100000", str(enough))
    race.until(lambda: race.lane.steady.windows >= 2, "steady windows")
    offered = {event.knob: event.value for event in race.of(KnobOffered)}
    assert offered == {"prefetch": "auto", "input_threads": "auto", "batch_size": 32, "learning_rate": 0.01}
    for knob, value in (("prefetch", 2), ("input_threads", 1), ("prefetch", "off"), ("prefetch", "auto")):
        assert change(race, knob, value).step % 20 == 1, "the first step of an epoch"
    last = race.of(KnobApplied)[-1].step
    race.until(lambda: race.of(Window)[-1].step > last + 40, "two epochs more")
    assert race.lane.settings["prefetch"] == "auto"
    in_batches_of_32 = len(printed(race))
    for size in (64, 32):
        change(race, "batch_size", size)
        since = len(race.of(Window))
        race.until(
            lambda since=since, size=size: any(
                window.examples == size * window.steps for window in race.of(Window)[since:]
            ),
            f"batches of {size}",
        )
    enough.touch()
    race.until(lambda: race.lane.end.event is not None, "the end")
    assert race.lane.end.event.exit_code == 0
    lines = printed(race)
    count = len(lines)
    assert printed(race, "traced") == ["traced 32 64"], "once for each size"
    assert race.lane.totals.steps == int(lines[-1].split()[-1]) < 20 * count
    assert sum(one.traced_steps for one in race.of(Window)) <= 3, "the first step, and each of the two changes"
    assert sum(one.examples + one.sampled_examples for one in race.of(Window)) == 640 * count
    alone = [line for line in run_python(path, count).stdout.splitlines() if line.startswith("epoch ")]
    assert lines[:in_batches_of_32] == alone[:in_batches_of_32]
    assert [line.split()[1] for line in lines] == [line.split()[1] for line in alone]


def test_validation_in_between_is_not_changed_and_ends_no_epoch_and_two_optimizers_are_no_knob(watch, script):
    race = watch(script(LOOP + VALIDATES))
    race.until(lambda: race.lane.steady.windows >= 1, "steady windows")
    assert "learning_rate" not in {event.knob for event in race.of(KnobOffered)}
    assert change(race, "batch_size", 80).step % 20 == 1
    assert change(race, "prefetch", 1).step % 8 == change(race, "prefetch", 2).step % 8
    assert set(printed(race, "held")) == {"held 32"}


def test_a_loop_without_a_next_epoch_is_set_from_its_start_only(watch, script):
    path = script(LOOP + "train(data.repeat(), 0.002, 1)")
    race = watch(path, prefetch=1)
    race.until(lambda: race.lane.steady.windows >= 1, "steady windows")
    assert race.lane.settings["prefetch"] == 1
    race.lanes.set_knob(race.name, "prefetch", 2)
    reason = race.until_event(KnobRefused).reason
    assert reason.endswith("has no next epoch: set it from the start, --set prefetch=2")
    watched = printed(race)
    alone = subprocess.Popen([sys.executable, path], stdout=subprocess.PIPE, text=True)
    own = itertools.islice((line for line in alone.stdout if line.startswith("epoch ")), len(watched))
    assert [line.strip() for line in own] == watched
    alone.kill()


def test_a_generator_gives_every_element_in_batches_of_another_size_and_the_learning_rate_is_a_knob(watch, script):
    race = watch(script(LOOP + GENERATOR), batch_size=20, learning_rate=0.25)
    race.until(lambda: race.lane.steady.windows >= 1, "steady windows")
    assert race.lane.settings["learning_rate"] == 0.25
    change(race, "learning_rate", 0.125)
    race.until(lambda: printed(race, "rate") == ["rate 0.25", "rate 0.125"], "the rates, from the first step on")
    lines = [line.split()[1:] for line in printed(race, "got")]
    assert {len(line) for line in lines} == {20}
    numbers = [int(word) for line in lines for word in line]
    assert numbers == list(range(len(numbers)))


class Interrupting:
    """Interrupts this process when it is freed, without a step of Python, as a user does during a wait in C++."""

    __del__ = staticmethod(functools.partial(ctypes.CDLL(None).kill, os.getpid(), signal.SIGINT))


def test_an_interrupt_while_an_iterator_is_freed_reaches_the_script():
    iterator = type("Iterated", (), {})()
    iterator.resource = Interrupting()
    Frees(nothing).watch(iterator)
    with pytest.raises(KeyboardInterrupt):
        del iterator
        for _ in range(100):
            time.sleep(0.01)

"""Runs in a lane for scripts.py: the same work with tfmon's hooks and without, in many short alternations.

    loop_cost.py step|eager|batch|call|fit PAIRS UNITS

prints a line for each pair, with the CPU seconds without hooks and with them. watch_cost.py trains the same.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

UNITS = int(sys.argv[3]) if len(sys.argv) > 3 else 64
STEPS, EAGER_STEPS, CALLS, WARM_UP = 400, 200, 2_000, 4
x = np.random.default_rng(0).random((32 * STEPS, 64)).astype("float32")
y = x[:, :1]
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(32)
model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(UNITS, "relu"), keras.layers.Dense(1)])
model.compile("sgd", "mse")
ONE = tf.ones(())


def eager_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x) - y))
    model.optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return loss


step = tf.function(eager_step)


@tf.function
def untrained(x):
    return x + 1.0


def epoch() -> None:
    for x_batch, y_batch in data:
        step(x_batch, y_batch)


def eager() -> None:
    for x_batch, y_batch in data.take(EAGER_STEPS):
        eager_step(x_batch, y_batch)


def batches() -> None:
    for first in range(0, 32 * EAGER_STEPS, 32):
        model.train_on_batch(x[first : first + 32], y[first : first + 32])


def calls() -> None:
    for _ in range(CALLS):
        untrained(ONE)


def switched(work: Callable[[], None]) -> Callable[[bool], None]:
    """Return the work, done with the hooks or with the methods that they replaced."""
    from tfmon.hooks.install import hooks

    installed = [each for each in hooks._replaced if each[0].__dict__.get(each[1]) is each[3]]

    def run(on: bool) -> None:
        for owner, name, own, hook, _ in installed:
            setattr(owner, name, hook if on else own)
        work()

    return run


def fits() -> Callable[[bool], None]:
    """Return an epoch of `fit` on one model, by a train function that was traced with the hooks, or without."""
    watched, functions = keras.Model.fit, {}

    def run(on: bool) -> None:
        model.train_function = functions.get(on)
        (watched if on else watched.__wrapped__)(model, data, epochs=1, verbose=0)
        functions[on] = model.train_function

    return run


def main() -> None:
    works = {"step": epoch, "eager": eager, "batch": batches, "call": calls}
    what, pairs = sys.argv[1], int(sys.argv[2])
    (works[what] if what in ("eager", "batch") else epoch)()
    run = fits() if what == "fit" else switched(works[what])
    for number in range(-WARM_UP, pairs):
        took = {}
        for on in (True, False) if number % 2 else (False, True):
            began = time.process_time()
            run(on)
            took[on] = time.process_time() - began
        if number >= 0:
            print("pair", took[False], took[True], flush=True)


if __name__ == "__main__":
    main()

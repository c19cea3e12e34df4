"""Measure what `tfmon.watch` costs the training in its block: with and without it, by turns, in one process.

    python tests/benchmarks/watch_cost.py [fit|loop] [PAIRS] [UNITS]

Each half of a pair trains for about a second, with the panel and the readings of each second in it. `fit` is Keras
on one model with two train functions, of which the one was traced in a block; `loop` a loop with a tf.function.
Printed are medians of the ratios, of time and of the CPU time of all threads, with a 95 % interval by their order.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import sys
import time

import keras
import numpy as np
import tensorflow as tf

import tfmon

WHAT = sys.argv[1] if len(sys.argv) > 1 else "fit"
PAIRS = int(sys.argv[2]) if len(sys.argv) > 2 else 30
UNITS = int(sys.argv[3]) if len(sys.argv) > 3 else 64
STEPS, HALF_S, WARM_UP = 400, 1.0, 2
x = np.random.default_rng(0).random((32 * STEPS, 64)).astype("float32")
data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(32)
model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(UNITS, "relu"), keras.layers.Dense(1)])
model.compile("sgd", "mse")
functions: dict[bool, object] = {}


@tf.function
def step(features, labels):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(features) - labels))
    model.optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return loss


def epoch(on: bool) -> None:
    if WHAT == "fit":
        model.train_function = functions.get(on)
        model.fit(data, epochs=1, verbose=0)
        functions[on] = model.train_function
    else:
        for features, labels in data:
            step(features, labels)


def half(on: bool, epochs: int) -> tuple[float, float, float]:
    """Return seconds and CPU seconds of some epochs, and the seconds of leaving the block."""
    watched = tfmon.watch(progress=lambda _line: watched._repr_html_()) if on else contextlib.nullcontext()
    with watched:
        epoch(on)  # warm-up
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        for _ in range(epochs):
            epoch(on)
        ended_s, ended_cpu_s = time.perf_counter(), time.process_time()
    return ended_s - began_s, ended_cpu_s - began_cpu_s, time.perf_counter() - ended_s


def told(ratios: list[float]) -> str:
    """Return the median of ratios with its interval."""
    ratios = sorted(100 * one - 100 for one in ratios)
    out = math.floor(len(ratios) / 2 - 0.98 * math.sqrt(len(ratios)))
    return f"{statistics.median(ratios):+.2f} % [{ratios[out]:+.2f}, {ratios[-1 - out]:+.2f}]"


def main() -> None:
    with tfmon.watch(progress=False):
        epoch(True)
    epoch(False)
    epochs = max(1, round(HALF_S / half(False, 1)[0]))
    pairs = []
    for number in range(-WARM_UP, PAIRS):
        took = {on: half(on, epochs) for on in ((True, False) if number % 2 else (False, True))}
        if number >= 0:
            pairs.append((took[False], took[True]))
    each_us = 1e6 * statistics.median(off[0] for off, _ in pairs) / epochs / STEPS
    time_text, cpu_text = (told([on[part] / off[part] for off, on in pairs]) for part in (0, 1))
    leave_ms = 1e3 * statistics.median(on[2] for _, on in pairs)
    print(f"{WHAT}, {UNITS} units, {each_us:.0f} µs a step; leaving takes {leave_ms:.0f} ms")
    print(f"time {time_text}, CPU {cpu_text}")


main()

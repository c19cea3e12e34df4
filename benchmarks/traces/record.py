"""Record a trace of `tests/profile/data/` on the CPU into a folder, for `test_xprof` and `crosscheck.py`:

    python benchmarks/traces/record.py small|large|slow-input FOLDER

- `small`: five steps of a dense net with a prefetching pipeline, kept as `dense-tf2.18.xplane.pb` and
  `dense-tf2.21.xplane.pb`, as TensorFlow wrote them.
- `large`: five steps with a large dense layer on one batch, kept as `dense-onednn.xplane.pb.gz` and, with
  TF_CPU_ALLOCATOR_USE_BFC=true, as `dense-bfc.xplane.pb.gz`. XProf and tfmon may report different moments of a
  peak that is reached twice.
- `slow-input`: ten steps of a conv net that waits for its input, kept as `slow-input.xplane.pb.gz`. It was
  recorded with oneDNN on 2 busy cores, and its update of weights had no optimizer.

The files in .gz are from TensorFlow 2.21, without the name of the folder.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import tensorflow as tf

from tfmon.trainer.capture import Capture

layers = tf.keras.layers


def pipeline(shape: tuple[int, ...], examples: int, batch: int) -> Any:
    random = np.random.default_rng(0)
    x, y = random.normal(size=(examples, *shape)).astype("float32"), random.integers(0, 10, examples)
    return tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(batch)


def small() -> tuple[Any, Any, Any, Iterator[Any], int]:
    model = tf.keras.Sequential([tf.keras.Input((32,)), layers.Dense(64, activation="relu"), layers.Dense(10)])
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return model, loss_of, tf.keras.optimizers.Adam(1e-3), iter(pipeline((32,), 4_000, 10).prefetch(2)), 5


def large() -> tuple[Any, Any, Any, Iterator[Any], int]:
    wide, narrow = layers.Dense(2048, activation="relu", name="large"), layers.Dense(512, name="small")
    model = tf.keras.Sequential([tf.keras.Input((64,)), wide, narrow])

    def squares(y: Any, out: Any) -> Any:
        return tf.reduce_mean((out - y) ** 2)

    batch = tf.random.normal((4096, 64)), tf.random.normal((4096, 512))
    return model, squares, tf.keras.optimizers.Adam(), itertools.repeat(batch), 5


def slow_input() -> tuple[Any, Any, Any, Iterator[Any], int]:
    def slow(x: Any, y: Any) -> tuple[Any, Any]:
        return tf.sort(tf.repeat(x, 40, axis=0), axis=1)[:32], y

    net = [layers.Conv2D(32, 3, activation="relu"), layers.MaxPool2D(), layers.Conv2D(32, 3, activation="relu")]
    model = tf.keras.Sequential([tf.keras.Input((32, 32, 3)), *net, layers.Flatten(), layers.Dense(10)])
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    batches = pipeline((32, 32, 3), 320, 32).map(slow).with_options(options)
    return model, loss_of, tf.keras.optimizers.SGD(0.01), iter(batches), 10


def main(what: str, folder: Path) -> None:
    model, loss_of, optimizer, batches, steps = {"small": small, "large": large, "slow-input": slow_input}[what]()
    weights = model.trainable_variables
    optimizer.build(weights)

    @tf.function
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss

    for _ in range(20 if what == "small" else 5):
        step(*next(batches))
    capture = Capture(folder)
    capture.start()
    for _ in range(steps):
        with capture.step():
            step(*next(batches)).numpy()
    print(capture.stop())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

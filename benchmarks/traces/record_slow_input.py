"""Record ten steps of a small conv net that waits for its input, into a folder: for `test_xprof`.

python benchmarks/traces/record_slow_input.py FOLDER

Kept as `slow-input.xplane.pb.gz`: TensorFlow 2.21 with oneDNN on 2 busy cores, without the name of the folder.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import tensorflow as tf

from tfmon.trainer.capture import Capture

STEPS = 10


def main(folder: Path) -> None:
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [tf.keras.Input((32, 32, 3)), layers.Conv2D(32, 3, activation="relu"), layers.MaxPool2D(),
         layers.Conv2D(32, 3, activation="relu"), layers.Flatten(), layers.Dense(10)]
    )  # fmt: skip
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    weights = model.trainable_variables

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.01 * gradient)
        return loss

    def slow(x, y):
        return tf.sort(tf.repeat(x, 40, axis=0), axis=1)[:32], y

    random = np.random.default_rng(0)
    examples = random.normal(size=(320, 32, 32, 3)).astype("float32"), random.integers(0, 10, 320)
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    batches = iter(tf.data.Dataset.from_tensor_slices(examples).repeat().batch(32).map(slow).with_options(options))
    for _ in range(5):
        step(*next(batches))
    capture = Capture(folder)
    capture.start()
    for _ in range(STEPS):
        with capture.step():
            step(*next(batches)).numpy()
    print(capture.stop())


if __name__ == "__main__":
    main(Path(sys.argv[1]))

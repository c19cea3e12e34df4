"""Record the two real traces in `tests/profile/data/`, once under each TensorFlow:

    python benchmarks/traces/record_traces.py

Five steps of a dense net with Keras' Adam, batch 10, from a prefetching tf.data pipeline, on the CPU. The files
are kept as TensorFlow wrote them.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from tfmon.trainer.capture import Capture  # noqa: E402

STEPS = 5


def main() -> None:
    model = tf.keras.Sequential(
        [tf.keras.Input((32,)), tf.keras.layers.Dense(64, activation="relu"), tf.keras.layers.Dense(10)]
    )
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    adam = tf.keras.optimizers.Adam(1e-3)
    adam.build(model.trainable_variables)

    weights = model.trainable_variables

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        adam.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss

    random = np.random.default_rng(0)
    examples = random.normal(size=(4000, 32)).astype("float32"), random.integers(0, 10, 4000)
    batches = iter(tf.data.Dataset.from_tensor_slices(examples).repeat().batch(10).prefetch(2))
    for _ in range(20):
        step(*next(batches))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # the trace holds the name of the folder it was written to
        capture = Capture(Path("profile"))
        capture.start()
        for _ in range(STEPS):
            with capture.step():
                step(*next(batches))
        minor = ".".join(tf.__version__.split(".")[:2])
        shutil.copy(capture.stop(), ROOT / "tests" / "profile" / "data" / f"dense-tf{minor}.xplane.pb")


if __name__ == "__main__":
    main()

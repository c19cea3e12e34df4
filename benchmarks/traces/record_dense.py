"""Record five steps of a net with a large dense layer, which trains on one batch, into a folder: for `test_xprof`.

python benchmarks/traces/record_dense.py FOLDER

Kept as `dense-onednn.xplane.pb.gz` and, with TF_CPU_ALLOCATOR_USE_BFC=true, as `dense-bfc.xplane.pb.gz`.
TensorFlow 2.21, without the name of the folder. XProf and tfmon may report different moments of a peak that is
reached twice.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import tensorflow as tf

from tfmon.trainer.capture import Capture


def main(folder: Path) -> None:
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            tf.keras.Input((64,)),
            layers.Dense(2048, activation="relu", name="large"),
            layers.Dense(512, name="small"),
        ]
    )
    weights = model.trainable_variables
    adam = tf.keras.optimizers.Adam()
    adam.build(weights)
    x, y = tf.random.normal((4096, 64)), tf.random.normal((4096, 512))

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        adam.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss

    step()
    capture = Capture(folder)
    capture.start()
    for _ in range(5):
        with capture.step():
            step().numpy()
    print(capture.stop())


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""A user's training that knows nothing of tfmon, `fit` of a dense net: other tools measure it, too.

python tests/benchmarks/user_script.py [--batch 64] [--epochs 20]
"""

from __future__ import annotations

import argparse


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()
    import keras
    import numpy as np
    import tensorflow as tf

    x = np.random.default_rng(0).random((65_536, 128), dtype=np.float32)
    layers = [keras.Input((128,)), keras.layers.Dense(256, activation="relu"), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile("adam", "mse")
    dataset = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(options.batch).prefetch(2)
    model.fit(dataset, epochs=options.epochs, verbose=0)


if __name__ == "__main__":
    main()

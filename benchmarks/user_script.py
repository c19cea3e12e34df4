"""A user's training that knows nothing of tfmon, `fit` of a dense net: other tools measure it, too.

python benchmarks/user_script.py [--steps-per-execution 1] [--epochs 20]
"""

from __future__ import annotations

import argparse


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps-per-execution", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()
    import keras
    import numpy as np

    x = np.random.default_rng(0).random((65_536, 128), dtype=np.float32)
    layers = [keras.Input((128,)), keras.layers.Dense(256, activation="relu"), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile("adam", "mse", steps_per_execution=options.steps_per_execution)
    model.fit(x, x[:, :1], batch_size=64, epochs=options.epochs, shuffle=False, verbose=0)


if __name__ == "__main__":
    main()

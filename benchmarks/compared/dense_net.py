"""A `fit` of a dense net. Is another device faster for this batch size? Did this commit slow it down?"""

import argparse

import keras
import numpy as np
import tensorflow as tf
from step_markers import profiling

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=128)
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--profile", help="profile these steps with markers")
options = parser.parse_args()

keras.utils.set_random_seed(0)
x = np.random.default_rng(0).random((8_192, 512), dtype=np.float32)
dataset = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(options.batch).prefetch(2)
model = keras.Sequential([keras.layers.Dense(1024, activation="relu") for _ in range(2)] + [keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(1e-3), "mse")
model.fit(dataset, epochs=options.epochs, verbose=0, callbacks=profiling(options.profile))

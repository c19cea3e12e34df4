"""A `fit` whose generator blurs the batches from the second epoch on. Why is it slow after the first epoch?"""

import argparse

import keras
import numpy as np
import tensorflow as tf
from step_markers import profiling

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--profile", help="profile these steps with markers")
options = parser.parse_args()

SIGNALS = np.random.default_rng(0).random((64, 32, 8_192), dtype=np.float32)
epochs = iter(range(options.epochs))


def blurred(signal):
    return np.fft.irfft(np.fft.rfft(signal) * np.linspace(1, 0, 4_097)).astype(np.float32)


def batches():
    epoch = next(epochs)
    for number in range(192):
        signal = SIGNALS[number % 64]
        batch = blurred(signal) if epoch else signal
        yield batch[:, :512], signal[:, :1]


signature = (tf.TensorSpec((32, 512)), tf.TensorSpec((32, 1)))
dataset = tf.data.Dataset.from_generator(batches, output_signature=signature).prefetch(2)
model = keras.Sequential([keras.layers.Dense(256, activation="relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(dataset, epochs=options.epochs, verbose=0, callbacks=profiling(options.profile))

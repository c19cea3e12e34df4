"""A `fit` whose batches come from a store that answers after 8 ms. Does prefetch help?"""

import argparse
import time

import keras
import numpy as np
import tensorflow as tf
from step_markers import profiling

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--prefetch", type=int, default=0, help="batches that the code reads ahead")
parser.add_argument("--profile", help="profile these steps with markers")
options = parser.parse_args()

keras.utils.set_random_seed(0)
x = np.random.default_rng(0).random((128, 512), dtype=np.float32)


def read(number):
    time.sleep(0.008)
    return x


def batch(number):
    rows = tf.ensure_shape(tf.numpy_function(read, [number], tf.float32), x.shape)
    return rows, rows[:, :1]


dataset = tf.data.Dataset.range(300).map(batch)
if options.prefetch:
    dataset = dataset.prefetch(options.prefetch)
model = keras.Sequential([keras.layers.Dense(1024, activation="relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(dataset, epochs=options.epochs, verbose=0, callbacks=profiling(options.profile))

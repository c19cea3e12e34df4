"""A `fit` that reads its examples from a Python generator. Is the input pipeline the limit?"""

import argparse

import keras
import numpy as np
import tensorflow as tf
from step_markers import profiling

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--cached", action="store_true", help="train with the first batch again and again")
parser.add_argument(
    "--tensorboard", action="store_true", help="profile steps 100 to 160 by TensorBoard's callback"
)
parser.add_argument("--profile", help="profile these steps with markers")
options = parser.parse_args()

SAMPLES = np.random.default_rng(0).random((2_000, 2_000), dtype=np.float32)
STEPS = 400


def examples():
    for number in range(STEPS * 32):
        sample = SAMPLES[number % len(SAMPLES)]
        yield sample[np.argsort(sample)[:256]], sample[:1]


signature = (tf.TensorSpec((256,)), tf.TensorSpec((1,)))
dataset = tf.data.Dataset.from_generator(examples, output_signature=signature).batch(32)
if options.cached:
    dataset = dataset.take(1).cache().repeat(STEPS)
callbacks = profiling(options.profile)
if options.tensorboard:
    callbacks = [keras.callbacks.TensorBoard("logs", profile_batch=(100, 160))]
model = keras.Sequential([keras.layers.Dense(512, activation="relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(dataset.prefetch(2), epochs=options.epochs, verbose=0, callbacks=callbacks)

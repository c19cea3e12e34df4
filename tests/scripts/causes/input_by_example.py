"""Prepares each example in each epoch, though it is kept before that, and scales examples one at a time."""

import sys

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(1)
model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD(0.001)
rows = np.random.default_rng(1).random((25_600, 64), dtype="float32")


def decode(x):
    return tf.reshape(tf.image.resize(tf.reshape(x, (8, 8, 1)), (1, 64)), (64,))


def scale(x):
    return 2 * x - 1


@tf.function
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x) - 1))
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return loss


if "mended" in sys.argv:
    epochs = 40
    dataset = tf.data.Dataset.from_tensor_slices(rows).map(decode).cache()
    dataset = dataset.batch(256).map(scale, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
else:
    epochs = 8
    dataset = tf.data.Dataset.from_tensor_slices(rows).cache()
    dataset = dataset.map(decode, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.map(scale).batch(256)

for _ in range(epochs):
    for batch in dataset:
        step(batch)

"""Reads from a generator, prepares in Python, augments one element at a time, and makes no batch ahead."""

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(1)
model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD(0.001)


def read():
    rows = np.arange(3_200 * 64, dtype="float32").reshape(3_200, 64)
    for row in rows:
        sum(range(6_000))
        yield row / 204_800


def standardise(row):
    sum(range(6_000))
    return row - row.mean()


def prepare(x):
    return tf.ensure_shape(tf.numpy_function(standardise, [x], tf.float32), (64,))


def augment(x):
    image = tf.image.resize(tf.reshape(x, (8, 8, 1)), (256, 256)) + tf.random.uniform(())
    return tf.reshape(tf.image.resize(image, (8, 8)), (64,))


@tf.function
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x) - 1))
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return loss


options = tf.data.Options()
options.experimental_optimization.inject_prefetch = False
dataset = tf.data.Dataset.from_generator(read, output_signature=tf.TensorSpec((64,), tf.float32))
dataset = dataset.map(prepare, num_parallel_calls=2)
dataset = dataset.prefetch(32)
dataset = dataset.map(augment)
dataset = dataset.batch(32).with_options(options)

for _ in range(4):
    for batch in dataset:
        step(batch)

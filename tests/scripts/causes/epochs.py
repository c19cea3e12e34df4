"""Trainings with slow epochs: because of a cache, of pauses, and in a custom loop."""

import sys
import time

import keras
import numpy as np
import tensorflow as tf

x, y = np.ones((1600, 16), "float32"), np.ones((1600, 1), "float32")
model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])
model.compile("sgd", "mse")


def seldom(row):
    time.sleep(0.0025)
    return row


def slow(rows, target):
    return tf.ensure_shape(tf.numpy_function(seldom, [rows], tf.float32), (16,)), target


class Reports(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        time.sleep(0.8)


def first_epoch():
    """Fill a cache in the first epoch."""
    data = tf.data.Dataset.from_tensor_slices((x, y)).map(slow).cache().batch(32)
    model.fit(data, epochs=6, verbose=0)


def pauses():
    """Validate, report, and fill a buffer of a shuffle at each epoch."""
    data = tf.data.Dataset.from_tensor_slices((x, y)).map(slow).shuffle(400).take(320).batch(32)
    valid = tf.data.Dataset.from_tensor_slices((x, y)).map(slow).batch(32)
    model.fit(data, epochs=4, verbose=0, callbacks=[Reports()], validation_data=valid.take(20))


def later_epochs():
    """Read slowly from the second epoch on, in a loop by hand."""
    optimizer = keras.optimizers.SGD(0.001)
    weights, passes = model.trainable_weights, [0]

    def rows():
        passes[0] += 1
        for _ in range(30):
            time.sleep(0.001 if passes[0] == 1 else 0.04)
            yield x[:32], y[:32]

    @tf.function
    def train(rows, target):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(rows) - target) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss

    spec = tf.TensorSpec((32, 16)), tf.TensorSpec((32, 1))
    options = tf.data.Options()
    options.autotune.enabled = False  # to free an iterator waits for it, for up to seconds
    data = tf.data.Dataset.from_generator(rows, output_signature=spec).with_options(options)
    for _ in range(6):
        for number, (rows_, target) in enumerate(data, 1):
            train(rows_, target)
            if number == 30:
                time.sleep(0.3)  # the pull of the data's end then follows a window's end
        time.sleep(0.2)


def small_steps():
    """Train many small steps, and predict for one sample at a time."""
    model.fit(x, y, epochs=150, verbose=0)
    for _ in range(30):
        model.predict(x[:1], verbose=0)


for name in sys.argv[1:]:
    globals()[name]()

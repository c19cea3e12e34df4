"""Fails in every way that passes through a hook and prints the visible errors; then trains and fails."""

import os
import signal
import sys
import threading
import time
import traceback
import warnings

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(0)
data = tf.data.Dataset.from_tensor_slices(np.ones((320, 4), "float32")).batch(32)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD(0.01)


trained = threading.Event()


def waits():
    yield np.ones((2, 4), "float32")
    trained.wait()
    # The loop must be in TensorFlow, waiting for the next batch.
    while sys._current_frames()[threading.main_thread().ident].f_code.co_name != "iterator_get_next":
        time.sleep(0.01)
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.2)
    yield np.ones((2, 4), "float32")


class Own(keras.Model):
    def train_step(self, data):
        raise ValueError("in train_step")


@tf.function
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(x))
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return loss


@tf.function
def fails(x):
    loss = step(x)
    tf.debugging.assert_less(loss, -1e9)
    return loss


@tf.function
def cannot_be_differentiated(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.linalg.inv(x[:, tf.newaxis] * tf.zeros((4, 4)) * model.trainable_variables[0]))
    return tape.gradient(loss, model.trainable_variables)


def in_fit():
    inputs = keras.Input((4,))
    own = Own(inputs, keras.layers.Dense(1)(inputs))
    own.compile("sgd", "mse")
    own.fit(data, verbose=0)


def in_the_data():
    for x in data.map(lambda x: tf.debugging.check_numerics(x / 0.0, "by zero")):
        step(x)


def at_the_end():
    iterator = iter(data.take(1))
    iterator.get_next()
    iterator.get_next()


def eagerly():
    optimizer.apply([tf.ones((3, 3))], [model.trainable_variables[0]])


def without_variables():
    with tf.GradientTape() as tape:
        loss = tf.ones(())
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)


def of_the_wrong_shape():
    model.trainable_variables[0].assign(np.ones((7, 7)))


def interrupted():
    for x in tf.data.Dataset.from_generator(waits, output_signature=tf.TensorSpec((2, 4))):
        step(x)
        trained.set()


for x in data:
    step(x)
warnings.warn("the script's own", stacklevel=1)
for each in (
    lambda: fails(tf.ones((2, 4))),
    lambda: cannot_be_differentiated(tf.ones((2, 4))),
    in_fit,
    in_the_data,
    at_the_end,
    eagerly,
    without_variables,
    of_the_wrong_shape,
    interrupted,
):
    try:
        each()
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        print("----")
print("trained", int(optimizer.iterations), "steps")
sys.stdout.flush()
for x in data:
    step(x)
    fails(x)

"""A script that times its own parts and prints the times: two trainings with Keras, and a custom loop."""

import json
import time

times = {}


class Timed:
    def __init__(self, name):
        self.name = name

    def __enter__(self):
        self.began = time.perf_counter()

    def __exit__(self, *_):
        times[self.name] = times.get(self.name, 0) + time.perf_counter() - self.began


def busy(name, seconds):
    with Timed(name):
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            time.sleep(0.002)


with Timed("imports"):
    import keras
    import numpy as np
    import tensorflow as tf


def load():
    busy("loading", 2.5)


class Slow(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        busy("callback", 0.4)

    def on_train_batch_begin(self, batch, logs=None):
        self.timed = Timed("steps of fit" if "first step" in times else "first step")
        self.timed.__enter__()

    def on_train_batch_end(self, batch, logs=None):
        self.timed.__exit__()


def batches():
    for number in range(30):
        busy("input" if "first batch" in times else "first batch", 0.03 if number else 1.0)
        yield np.ones((8, 4), "float32"), np.ones((8, 1), "float32")


def make_model():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


load()
kinds = tf.TensorSpec((8, 4)), tf.TensorSpec((8, 1))
options = tf.data.Options()
options.experimental_optimization.inject_prefetch = False  # no batch is made while a step runs
dataset = tf.data.Dataset.from_generator(batches, output_signature=kinds).with_options(options)
make_model().fit(dataset, epochs=2, verbose=0, callbacks=[Slow()])
busy("between", 2.0)
model = make_model()
optimizer = keras.optimizers.SGD(0.1)


def train(steps):
    for _ in range(steps):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(tf.ones((8, 4))) - 1.0) ** 2)
            time.sleep(0.02)
        gradients = tape.gradient(loss, model.trainable_weights)
        optimizer.apply(gradients, model.trainable_weights)


train(1)
with Timed("own steps"):  # a step begins where the one before ends, so the loop around them counts, too
    train(40)
busy("after", 3.0)
print("own clock", json.dumps(times), flush=True)

"""Trains with slow steps of several kinds, each of which is named on the command line."""

import sys
import tempfile
import time

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(1)
rows = np.random.default_rng(1).random((640, 8), dtype="float32")


def network(*layers, **compiled):
    model = keras.Sequential([keras.Input((8,)), *layers, keras.layers.Dense(3, activation="softmax")])
    model.compile(**{"optimizer": "sgd", "loss": "mse", **compiled})
    return model


def only_adapts():
    scale = keras.layers.Normalization()
    scale.adapt(tf.data.Dataset.from_tensor_slices(rows).batch(1))
    return scale


def adapts():
    network(only_adapts()).fit(rows, rows[:, :3], epochs=4, verbose=0)


def calls_back():
    class Watches(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            time.sleep(0.02)

    watches = Watches()
    each = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: time.sleep(0.02))
    with tempfile.TemporaryDirectory() as folder:
        saves = keras.callbacks.ModelCheckpoint(f"{folder}/a.keras", save_freq=5)
        network().fit(rows, rows[:, :3], epochs=4, verbose=0, callbacks=[watches, each, saves])
    assert "on_train_batch_begin" not in vars(watches)


def has_metrics():
    kinds = (keras.metrics.TruePositives, keras.metrics.FalsePositives, keras.metrics.AUC)
    metrics = [kind(thresholds=[0.2, 0.8], name=f"{kind.__name__}{n}") for n in range(8) for kind in kinds[:2]]
    metrics += [keras.metrics.AUC(num_thresholds=20, name=f"auc{n}") for n in range(8)]
    network(metrics=metrics).fit(rows, rows[:, :3] > 0.5, epochs=4, verbose=0)


def looks_up():
    model = keras.Sequential(
        [
            keras.Input((8,), dtype="int32"),
            keras.layers.Embedding(200_000, 16),
            keras.layers.Flatten(),
            keras.layers.Dense(3),
        ]
    )
    model.compile(keras.optimizers.RMSprop(), "mse")
    model.fit((rows * 200_000).astype("int32"), rows[:, :3], epochs=3, verbose=0)


def runs_eagerly():
    model, optimizer = network(), keras.optimizers.Adam()
    for _ in range(60):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(rows[:32]) - 1.0))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)


def unrolls():
    weights = tf.Variable(tf.random.normal((8, 8)))

    def cell(state):
        return tf.tanh(state @ weights) + tf.sigmoid(state)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            moment = 0
            while moment < 250:
                x = cell(x)
                moment += 1
            loss = tf.reduce_mean(x)
        weights.assign_sub(0.01 * tape.gradient(loss, weights))
        return loss

    for batch in tf.data.Dataset.from_tensor_slices(rows).batch(32).repeat(3):
        step(batch)


def makes_models():
    for _ in range(7):
        network(keras.layers.Dense(8)).fit(rows, rows[:, :3], epochs=1, verbose=0)


for name in sys.argv[1:]:
    globals()[name]()

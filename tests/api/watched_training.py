"""Trains with `tfmon.watch` and without, and prints what test_watch.py compares, as one line of JSON."""

import hashlib
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfmon

rng = np.random.default_rng(0)
x, y = rng.random((1_024, 16)).astype("float32"), rng.integers(0, 10, 1_024)


LONGER = 10
"""Epochs of a fit that takes long enough for a steady window."""


def new_data() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(256, seed=3).batch(8)


def new_model() -> keras.Model:
    keras.utils.set_random_seed(7)
    layers = [
        keras.Input((16,)),
        keras.layers.Dense(32, "relu"),
        keras.layers.Dropout(0.2),
        keras.layers.Dense(10),
    ]
    model = keras.Sequential(layers)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model


def fit(model: keras.Model, epochs: int = 2) -> list[float]:
    kept = keras.callbacks.LambdaCallback(on_epoch_end=lambda _epoch, _logs: None)
    return model.fit(
        new_data(), epochs=epochs, verbose=0, callbacks=[kept], validation_data=(x[:64], y[:64])
    ).history["loss"]


def new_step(model: keras.Model):
    @tf.function
    def step(features, labels):
        with tf.GradientTape() as tape:
            loss = model.compute_loss(features, labels, model(features, training=True))
        model.optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    return step


def loop(step, epochs: int = 2) -> list[float]:
    data = new_data()
    return [float(step(features, labels)) for _ in range(epochs) for features, labels in data]


def digest(model: keras.Model) -> str:
    return hashlib.sha256(b"".join(weight.tobytes() for weight in model.get_weights())).hexdigest()


def callables() -> dict[tuple[str, str, str], int]:
    """Return the identity of everything that can be called in the modules and classes of TensorFlow and Keras."""
    found = {("os", "", "_exit"): id(os._exit)}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] not in ("keras", "tensorflow") or module is None:
            continue
        for key, value in list(vars(module).items()):
            if callable(value):
                found[name, "", key] = id(value)
            if isinstance(value, type):
                kept = [one for one in vars(value).items() if key not in ("__dict__", "__weakref__")]
                found |= {(name, key, attribute): id(one) for attribute, one in kept if callable(one)}
                found[name, key, "all"] = hash(tuple(sorted(vars(value))))
    return found


def state() -> tuple[Any, ...]:
    fds = len([*Path("/proc/self/fd").iterdir()]) if sys.platform == "linux" else 0
    return dict(os.environ), [type(one).__name__ for one in sys.meta_path], fds, len(threading.enumerate())


class Parts(keras.Model):
    """Trains one weight with any data."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = self.add_weight(shape=(), initializer="ones")

    def train_step(self, batch):
        with tf.GradientTape() as tape:
            loss = tf.square(self.weight)
        self.optimizer.apply(tape.gradient(loss, [self.weight]), [self.weight])
        return {"loss": loss}


rows = tf.data.Dataset.from_tensor_slices(np.ones((64, 6, 4), "float32")).batch(16)
UNCOUNTED = {
    "a part is longer": (rows.map(lambda x: {"x": x, "others": tf.repeat(x, 3, 0)}), 1),
    "several steps a call": (tf.data.Dataset.zip((rows, rows.map(lambda x: x[:4]))), 2),
    "rows come second": (rows.map(lambda x: tf.transpose(x, [1, 0, 2])), 1),
}
"""Data of which no dimension of all parts counts the examples, and the steps of a call."""


def main() -> None:
    told: dict[str, Any] = {}
    warm = new_model()
    fit(warm, 1)
    old_step = new_step(warm)
    loop(old_step, 1)
    before, state_before = callables(), state()
    for number, epochs in ((1, LONGER), (2, 2)):
        model, other = new_model(), new_model()
        with tfmon.watch(progress=False) as w:
            losses = fit(model, epochs)
        told[f"fit {number}"] = [losses == fit(other, epochs), digest(model) == digest(other), w.result.to_json()]
    with tfmon.watch(progress=False) as w:
        hooked = callables()
        fit(model)  # by the train function of the block before
    told["again"] = w.result.to_json()
    fit(other)
    told["again equal"] = digest(model) == digest(other)
    model, other = new_model(), new_model()
    step = new_step(model)
    with tfmon.watch(progress=False) as w:
        losses = loop(step)
    told["loop 1"] = [losses == loop(new_step(other)), digest(model) == digest(other), w.result.to_json()]
    loop(step, 1)  # updates that nobody sees
    with tfmon.watch(progress=False) as w:
        loop(step)
    told["loop again"] = w.result.to_json()
    own = warm.train_function
    with tfmon.watch(progress=False) as w:
        fit(warm)  # traced before any block
    told["traced before"], told["own function"] = w.result.to_json(), warm.train_function is own
    with tfmon.watch(progress=False) as w:
        loop(old_step)
    told["loop before"] = w.result.to_json()
    for name, (data, steps) in UNCOUNTED.items():
        parts = Parts()
        parts.compile("sgd", steps_per_execution=steps)
        with tfmon.watch(progress=False) as w:
            parts.fit(data, epochs=2, verbose=0)
        told[name] = w.result.to_json()
    error, raised = ValueError("of the script"), None
    w = tfmon.watch(progress=False)
    try:
        with w:
            fit(model)
            raise error
    except ValueError as caught:
        raised = caught
    told["raises"] = [raised is error, error.__traceback__.tb_next is None, w.result.to_json()]
    told["hooked"] = [key for key, value in hooked.items() if before.get(key, value) != value]
    told["changed"] = [key for key, value in callables().items() if before.get(key, value) != value]
    told["state"] = state() == state_before
    print("\n" + json.dumps(told))


main()

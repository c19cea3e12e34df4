"""Scripts whose input is slow: what makes it so is named with its line, its share and what to write."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from support.waiting import HANGS_S

from .test_causes import causes_in, line_of

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]


def test_what_makes_input_slow_is_named_with_its_line_and_what_to_write():
    causes = causes_in(name := "input_in_python.py")
    read, python, one = (causes[f"input_{kind}"] for kind in ("generator", "python_function", "sequential_map"))
    assert "from_generator(read) makes one example at a time in Python" in read["text"]
    assert read["place"].startswith(line_of(name, "from_generator(read")) and "yield x[i" in read["code"][0]
    assert "map(prepare) runs Python for one element at a time: tf.numpy_function" in python["text"]
    assert python["place"].startswith(line_of(name, "map(prepare"))
    assert one["place"].startswith(line_of(name, "map(augment")) and "num_parallel_calls" in one["code"][0]
    ahead = causes["input_no_prefetch"]
    assert ahead["place"].startswith(line_of(name, "prefetch(32)")) and (ahead["knob"], ahead["value"]) == (
        "prefetch",
        "auto",
    )

    causes = causes_in(name := "input_by_example.py")
    decode, scale = causes["input_map_after_cache"], causes["input_map_before_batch"]
    assert decode["place"].startswith(line_of(name, "map(decode, num")) and ".cache()" in decode["code"][0]
    assert "map(scale) is called for each example: in batches of 32" in scale["text"]
    seen = [cause for cause, one in causes_in(name, "mended").items() if one["count"]]  # not only supposed
    assert not any(cause.startswith("input_") for cause in seen)


def test_what_fit_reads_is_named_with_its_line_and_what_to_write():
    causes = causes_in(name := "input_of_fit.py")
    data, arrays = causes["input_py_dataset"], causes["input_arrays"]
    assert "Data makes its batches in one thread: workers=1" in data["text"] and "workers=4" in data["code"][0]
    assert data["place"].startswith(line_of(name, "def __getitem__"))
    assert "each `fit` makes a dataset of its arrays, 19 times" in arrays["text"]
    assert arrays["place"].startswith(line_of(name, "model.fit(x")) and "from_tensor_slices" in arrays["code"][0]


TRAITS = """
import json
import keras
import tensorflow as tf
from tfmon.script import input_causes, keras_watch, levers

same, random = (lambda x: x + 1), (lambda x: x + tf.random.uniform([], 0, 9, tf.int64))
data = tf.data.Dataset.range(9)
made = {
    "plain": data.batch(3),
    "work": data.map(same, num_parallel_calls=2).shuffle(9).batch(3),
    "cached": data.map(same).cache().batch(3),
    "after": data.cache().map(random).batch(3).repeat(),
    "skip": data.map(same).skip(4),
    "first": data.skip(4).map(same),
}
told = {name: sorted(input_causes.traits_of(one)) for name, one in made.items()}

def compiled(layer, optimizer="sgd", **more):
    model = keras.Sequential([keras.Input((3,)), layer])
    model.compile(optimizer, "mse", **more)
    return levers.traits_of(model)

class Unable(keras.layers.Dense):
    def __init__(self):
        super().__init__(1)
        self.supports_jit = False

class Seen(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        pass

slow = keras.optimizers.SGD()
slow.jit_compile = False
told["models"] = [
    compiled(keras.layers.Dense(1)), compiled(Unable()), compiled(keras.layers.Dense(1), slow),
    compiled(keras.layers.Dense(1), run_eagerly=True),
]
given = [Seen(), keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: None)]
given += [keras.callbacks.CSVLogger("log"), keras.callbacks.ModelCheckpoint("m.keras")]
told["callbacks"] = [keras_watch._sees_batches(one) for one in given]
print(json.dumps(told))
"""


def test_the_traits_of_a_pipeline_and_a_model_are_what_they_consist_of():
    ran = subprocess.run(
        [sys.executable, "-c", TRAITS], capture_output=True, text=True, timeout=HANGS_S, check=True
    )
    told = json.loads(ran.stdout.splitlines()[-1])
    assert told == {
        "plain": ["batch", "dataset"],
        "work": ["batch", "dataset", "shuffle", "uncached work"],
        "cached": ["batch", "cache", "dataset"],
        "after": ["batch", "cache", "dataset", "endless", "random map", "sequential map", "uncached work"],
        "skip": ["dataset", "skip after work", "uncached work"],
        "first": ["dataset", "uncached work"],
        "models": [["compiles"], [], [], ["eager", "run_eagerly"]],
        "callbacks": [True, True, False, False],
    }

"""A Python number as an argument of a tf.function: every new value is traced into a graph of its own.

100 features → Dense 128 relu → Dense 10, Adam, a batch of 32. `variant=python-number` passes the number of the
step to the training function as a Python integer, as a schedule or a log line often does. TensorFlow keeps a graph
for each value, so each step builds a new one, and the memory grows. `variant=tensor` passes a tensor: one graph
serves all steps.

The pane shows which argument made TensorFlow trace again.
"""

import numpy as np
import tensorflow as tf

from tfmon.trainer import Scenario


class Retracing(Scenario):
    batch_size = 32
    examples = 4_096
    variants = ("python-number", "tensor")
    contrast = ("variant=python-number", "variant=tensor")
    without = ("graph", "xla", "mixed_precision")

    def data(self):
        """Return (4096, 100) float32 features and (4096,) int64 labels."""
        random = np.random.default_rng(0)
        x = random.random((self.examples, 100), dtype=np.float32)
        return x, random.integers(10, size=self.examples)

    def model(self):
        """Make the net: 14,218 parameters."""
        model = tf.keras.Sequential(
            [
                tf.keras.Input((100,)),
                tf.keras.layers.Dense(128, activation="relu"),
                tf.keras.layers.Dense(10, activation="softmax"),
            ]
        )
        model.compile("adam", "sparse_categorical_crossentropy")
        return model

    def step(self, model):
        """Pass the number of the step, counted in Python, to the training."""
        train = super().step(model)
        as_tensor = self.knob("variant") == "tensor"

        @tf.function
        def counted(x, y, number):
            return train(x, y) + 0.0 * tf.cast(number, tf.float32)

        done = iter(range(1 << 62))

        def step(x, y):
            number = next(done)
            return counted(x, y, tf.constant(number) if as_tensor else number)

        step.runs_in_python = True
        return step

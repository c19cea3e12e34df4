"""A net of which one layer, `large`, takes nearly all the time: the scenario of `profile_pairs.py`.

The dense variant has 4 million weights, the conv variant 64 filters over images of 16 × 16.
"""

import numpy as np
import tensorflow as tf

from tfmon.trainer import Scenario


class OneLargeLayer(Scenario):
    batch_size = 64
    examples = 1_024
    variants = ("dense", "conv")

    def data(self):
        """Make random images and labels: (1024, 16, 16, 16) float32 and (1024,) int64."""
        random = np.random.default_rng(0)
        x = random.random((self.examples, 16, 16, 16), dtype=np.float32)
        return x, random.integers(10, size=self.examples)

    def model(self):
        """Make the net."""
        layers = tf.keras.layers
        if self.knob("variant") == "dense":
            hidden = [layers.Flatten(), layers.Dense(1024, activation="relu", name="large")]
        else:
            hidden = [layers.Conv2D(64, 3, activation="relu", name="large"), layers.GlobalAveragePooling2D()]
        model = tf.keras.Sequential([tf.keras.Input((16, 16, 16)), *hidden, layers.Dense(10)])
        model.compile(
            tf.keras.optimizers.SGD(1e-3), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        )
        return model

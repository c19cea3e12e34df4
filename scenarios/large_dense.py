"""The same dense net on 100 times the data: more steps, but no more work in each.

100 features → Dense 128 relu → Dense 10, Adam 1e-3, 100,000 examples, a batch of 32, prefetch auto. More data
do not make a GPU worth its launches; larger steps do. Press B until the throughput stops rising. Prefetch (p)
matters little while making a batch is much cheaper than the step that trains on it.
"""

import numpy as np
import tensorflow as tf

from tfmon.trainer import Scenario


class LargeDense(Scenario):
    """Example 3 of "creating and training small models is slower on the GPU"."""

    batch_size = 32
    prefetch = "auto"
    examples = 100_000

    def data(self):
        """Make random features and labels: (100000, 100) float32 and (100000,) int64."""
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
        model.compile(tf.keras.optimizers.Adam(1e-3), "sparse_categorical_crossentropy")
        return model

"""A small dense net on little data, where the GPU has next to nothing to do.

100 features → Dense 128 relu → Dense 10, Adam 1e-3, 1,000 examples, a batch of 10: about 14,000 multiplications an
example. A step ends before a GPU has launched its kernels, so the CPU wins, although most of its time is dispatch,
too. Watch the throughput rise almost in step with the batch (B).
"""

import numpy as np
import tensorflow as tf

from tfmon.trainer import Claim, Scenario


class SmallDense(Scenario):
    batch_size = 10
    prefetch = "off"
    examples = 1_000
    contrast = ("batch_size=10", "batch_size=256")
    source = "creating and training small models, example 2"
    claims = (
        Claim(
            id="bigger-batch-raises-throughput",
            says="a batch of 256 instead of 10 trains many times the examples a second",
            first="cpu,batch_size=256",
            second="cpu,batch_size=10",
            at_least=5,
        ),
        Claim(
            id="small-model-is-dispatch",
            says="a small step is overhead, not arithmetic: two cores are no faster than one",
            first="cpu,threads=auto",
            second="cpu,threads=1",
            at_most=1.1,
        ),
        Claim(
            id="small-model-is-slower-on-a-gpu",
            says="a small model on little data trains faster on the CPU than on a GPU",
            first="cpu",
            second="gpu",
            needs="gpu",
        ),
    )

    def data(self):
        """Return (1000, 100) float32 features and (1000,) int64 labels."""
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

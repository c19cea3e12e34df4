"""The same dense net on 100 times the data: more steps, but no more work in each.

100 features → Dense 128 relu → Dense 10, Adam 1e-3, 100,000 examples, a batch of 32, prefetch auto. Larger steps
make a GPU pay, more data does not. Press B until the throughput stops rising. Prefetch (p) matters little while
making a batch is much cheaper than training on it.
"""

import numpy as np
import tensorflow as tf

from tfmon.trainer import Claim, Scenario


class LargeDense(Scenario):
    batch_size = 32
    prefetch = "auto"
    examples = 100_000
    contrast = ("prefetch=off", "prefetch=auto")
    source = "creating and training small models, example 3"
    claims = (
        Claim(
            id="prefetch-speeds-up-training",
            says="prefetch makes training faster",
            first="cpu,prefetch=auto",
            second="cpu,prefetch=off",
        ),
        Claim(
            id="prefetch-hardly-matters-for-cheap-batches",
            says="prefetch hardly matters when a batch of 32 is cheap to make",
            first="cpu,prefetch=auto",
            second="cpu,prefetch=off",
            at_most=1.15,
        ),
        Claim(
            id="bigger-batch-stops-helping",
            says="a bigger batch raises throughput only until it stops: 8,192 is no faster than 2,048",
            first="cpu,batch_size=8192",
            second="cpu,batch_size=2048",
            at_most=1.2,
        ),
        Claim(
            id="more-data-make-a-gpu-pay",
            says="with 100 times the data the GPU wins",
            first="gpu",
            second="cpu",
            needs="gpu",
        ),
        Claim(
            id="larger-batches-make-a-gpu-pay",
            says="with a batch of 8,192 the GPU wins",
            first="gpu,batch_size=8192",
            second="cpu,batch_size=8192",
            needs="gpu",
        ),
    )

    def data(self):
        """Return (100000, 100) float32 features and (100000,) int64 labels."""
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

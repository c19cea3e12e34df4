"""A stack of dense layers with one op in the middle that is pinned to the CPU.

256 features → eight layers Dense 256 relu → Dense 10, Adam, a batch of 64. With `variant=pinned` the fourth relu
runs under `tf.device("CPU:0")`, like an op without a GPU kernel, which TensorFlow silently places on the CPU.
`variant=free` pins nothing.

On a GPU lane the activations then go to the host and back, forwards and backwards, while the GPU is idle. Larger
batches (B) make the copies larger. On a CPU lane both are equal. The knob `xla` is missing, because it compiles
the step for one device.
"""

import numpy as np
import tensorflow as tf

from tfmon.trainer import Claim, Scenario


class PinnedRelu(tf.keras.layers.Layer):
    """A relu that always runs on the CPU."""

    def call(self, values):
        """Return the relu of the values."""
        with tf.device("CPU:0"):
            return tf.nn.relu(values)


class OpPlacement(Scenario):
    batch_size = 64
    examples = 4_096
    variants = ("pinned", "free")
    without = ("xla",)
    contrast = ("variant=pinned", "variant=free")
    source = "poor GPU performance, bottleneck 2"
    claims = (
        Claim(
            id="pinned-op",
            says="One op on the CPU in the middle of a step slows a GPU down.",
            first="gpu,variant=free",
            second="gpu,variant=pinned",
            at_least=1.1,
            needs="gpu",
        ),
        Claim(
            id="pinned-op-on-the-cpu",
            says="It is the crossing that costs, not the op: on a CPU the pin makes no difference.",
            first="cpu,variant=free",
            second="cpu,variant=pinned",
            at_most=1.1,
        ),
    )

    def data(self):
        """Return (4096, 256) float32 features and (4096,) int64 labels."""
        random = np.random.default_rng(0)
        x = random.random((self.examples, 256), dtype=np.float32)
        return x, random.integers(10, size=self.examples)

    def model(self):
        """Make the net: 528,906 parameters."""
        layers = [tf.keras.Input((256,))]
        for number in range(8):
            pinned = number == 3 and self.knob("variant") == "pinned"
            layers += [tf.keras.layers.Dense(256), PinnedRelu() if pinned else tf.keras.layers.ReLU()]
        model = tf.keras.Sequential([*layers, tf.keras.layers.Dense(10, activation="softmax")])
        model.compile(tf.keras.optimizers.Adam(), "sparse_categorical_crossentropy")
        return model

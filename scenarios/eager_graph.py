"""One training step, eager and under tf.function.

28×28 grey images → Conv2D(16, 3) relu → MaxPooling → Flatten → Dense 10, Adam, a batch of 32. Eagerly, Python
starts every operation separately; under tf.function it starts one graph. Large steps (B) differ, too: in a graph
TensorFlow makes one operation of convolution, bias and relu, and skips the unused gradient of the images.

Press k for graph and xla, which change during training. The first step after xla goes on includes the compilation.
On a CPU XLA's convolutions are slower than TensorFlow's own.
"""

import numpy as np
import tensorflow as tf

from tfmon.trainer import Claim, Scenario


class EagerGraph(Scenario):
    batch_size = 32
    examples = 4_096
    contrast = ("graph=off", "graph=on")
    source = "load the GPU of an M1 more, example 2"
    claims = (
        Claim(
            id="tf-function-beats-eager",
            says="a step under tf.function is faster than the same step run eagerly",
            first="cpu,graph=on",
            second="cpu,graph=off",
        ),
        Claim(
            id="graph-matters-less-for-large-steps",
            says="for a large step there is little between eager and graph",
            first="cpu,graph=on,batch_size=2048",
            second="cpu,graph=off,batch_size=2048",
            at_most=1.25,
        ),
        Claim(
            id="xla-beats-graph",
            says="XLA makes the step faster still",
            first="cpu,xla=on",
            second="cpu,graph=on",
        ),
        Claim(
            id="reading-the-loss-each-step-costs",
            source="load the GPU of an M1 more, examples 1 and 2",
            says="calling .numpy() on the loss after every step slows a GPU down",
            first="gpu",
            second="gpu,sync_every_step=on",
            needs="gpu",
        ),
        Claim(
            id="reading-the-loss-is-free-on-a-cpu",
            source="load the GPU of an M1 more, examples 1 and 2",
            says="calling .numpy() on the loss after every step costs next to nothing on the CPU",
            first="cpu,sync_every_step=off",
            second="cpu,sync_every_step=on",
            at_most=1.1,
        ),
    )

    def data(self):
        """Return (4096, 28, 28, 1) float32 images and (4096,) int64 labels."""
        random = np.random.default_rng(0)
        x = random.random((self.examples, 28, 28, 1), dtype=np.float32)
        return x, random.integers(10, size=self.examples)

    def model(self):
        """Make the net: 27,210 parameters."""
        model = tf.keras.Sequential(
            [
                tf.keras.Input((28, 28, 1)),
                tf.keras.layers.Conv2D(16, 3, activation="relu"),
                tf.keras.layers.MaxPooling2D(),
                tf.keras.layers.Flatten(),
                tf.keras.layers.Dense(10, activation="softmax"),
            ]
        )
        model.compile(tf.keras.optimizers.Adam(1e-3), "sparse_categorical_crossentropy")
        return model

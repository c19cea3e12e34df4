"""A Python loop over NumPy slices with train_on_batch, against tf.data and one tf.function.

784 features → Dense 128 relu → Dense 10, Adam, 10,000 examples, a batch of 32. In `variant=loop` one Python thread
cuts a batch out of the arrays, has Keras train on it, and reads the loss; a GPU is idle in between. In
`variant=tf-data` a pipeline makes the batches ahead, the step is one call, and the loss is read a few times a
second. Both train with the same graph without XLA, which Keras' jit_compile="auto" turns on beside a GPU. The loss
of `train_on_batch` is a running mean.

A slice is cheaper than a batch of tf.data; the loop loses its time in Keras, once a step. On a CPU with few cores
that is a tenth or so, and less with large batches (B). With sync_every_step (k) the other variant reads its loss
after each step, too.
"""

import numpy as np
import tensorflow as tf

from tfmon.trainer import Claim, Scenario, runs_in_python


class PythonFeed(Scenario):
    batch_size = 32
    examples = 10_000
    variants = ("loop", "tf-data")
    without = ("graph", "xla", "mixed_precision")
    contrast = ("variant=loop", "variant=tf-data")
    source = "load the GPU of an M1 more, example 1"
    claims = (
        Claim(
            id="python-loop-starves-the-step",
            says="train_on_batch in a Python loop is slower than tf.data with a tf.function",
            first="cpu,variant=tf-data",
            second="cpu,variant=loop",
        ),
        Claim(
            id="python-loop-is-amortised",
            says="with a batch of 2,048 the Python loop costs next to nothing",
            first="cpu,variant=tf-data,batch_size=2048",
            second="cpu,variant=loop,batch_size=2048",
            at_most=1.15,
        ),
        Claim(
            id="python-loop-starves-a-gpu",
            says="a GPU fed by a Python loop is idle most of the time: tf.data makes it far faster",
            first="gpu,variant=tf-data",
            second="gpu,variant=loop",
            at_least=1.5,
            needs="gpu",
        ),
    )

    def data(self):
        """Return (10000, 784) float32 features and (10000,) int64 labels."""
        random = np.random.default_rng(0)
        self.x = random.random((self.examples, 784), dtype=np.float32)
        self.y = random.integers(10, size=self.examples)
        return self.x, self.y

    def feed(self, batches):
        """Return batches of tf.data, or slices of the arrays."""
        return self.slices() if self.knob("variant") == "loop" else super().feed(batches)

    def slices(self):
        """Yield full batches from the arrays without end."""
        size = self.knob("batch_size")
        while True:
            for start in range(0, self.examples - size + 1, size):
                yield self.x[start : start + size], self.y[start : start + size]

    def step(self, model):
        """Return `train_on_batch`, or the usual step."""
        if self.knob("variant") == "tf-data":
            return super().step(model)

        @runs_in_python
        def train(x, y):
            return model.train_on_batch(x, y)

        return train

    def model(self):
        """Make the net: 101,770 parameters."""
        model = tf.keras.Sequential(
            [
                tf.keras.Input((784,)),
                tf.keras.layers.Dense(128, activation="relu"),
                tf.keras.layers.Dense(10, activation="softmax"),
            ]
        )
        model.compile(tf.keras.optimizers.Adam(), "sparse_categorical_crossentropy", jit_compile=False)
        return model

"""Six transformer blocks over 256 tokens, as in a small BERT: a step takes seconds on a CPU.

128 random texts → Embedding(8,000, 384) → 6 × (attention with 6 heads, then Dense 1,536 and Dense 384, each with
layer normalization and a residual connection) → mean → Dense 2, Adam, a batch of 32. A step is some 600 billion
operations: 3 to 15 s on two cores.

Almost all of it is large products of matrices, which need a parallel device. Press k for sequence_length:
attention compares each token with each other one, so twice the length takes more than twice the time.
"""

import numpy as np
import tensorflow as tf

from tfmon.trainer import Claim, Knob, Scenario

WORDS, WIDTH, HEADS = 8_000, 384, 6


class Positions(tf.keras.layers.Layer):
    """Adds a learned vector for each position in the text."""

    def build(self, shape):
        """Make one row of weights for each position."""
        self.positions = self.add_weight(shape=shape[1:], initializer="random_normal")

    def call(self, inputs):
        """Return the inputs plus their positions."""
        return inputs + self.positions


class Transformer(Scenario):
    batch_size = 32
    examples = 128
    knobs = (
        Knob("sequence_length", 256, "Tokens in a text.", low=8, high=1024),
        Knob("blocks", 6, "Transformer blocks, one after the other.", low=1, high=48),
    )
    contrast = ("sequence_length=128", "sequence_length=256")
    source = "models of real size"
    claims = (
        Claim(
            id="long-texts-cost-more-than-in-proportion",
            says="attention makes twice the length take more than twice as long",
            first="cpu,sequence_length=128",
            second="cpu,sequence_length=256",
            at_least=2,
            seconds=180,
        ),
        Claim(
            id="transformer-needs-a-gpu",
            says="a GPU trains transformer blocks at least ten times as fast as the CPU",
            first="gpu",
            second="cpu",
            at_least=10,
            needs="gpu",
            seconds=180,
        ),
    )

    def data(self):
        """Return (128, sequence_length) int64 tokens and (128,) int64 labels."""
        random = np.random.default_rng(0)
        x = random.integers(WORDS, size=(self.examples, self.knob("sequence_length")))
        return x, random.integers(2, size=self.examples)

    def model(self):
        """Make the net: some 13.8 million parameters, 3.1 million of them in the embedding."""
        layers = tf.keras.layers
        tokens = tf.keras.Input((self.knob("sequence_length"),), dtype="int64")
        x = Positions()(layers.Embedding(WORDS, WIDTH)(tokens))
        for _ in range(self.knob("blocks")):
            attended = layers.MultiHeadAttention(HEADS, WIDTH // HEADS)(x, x)
            x = layers.LayerNormalization()(x + attended)
            dense = layers.Dense(WIDTH)(layers.Dense(4 * WIDTH, activation="gelu")(x))
            x = layers.LayerNormalization()(x + dense)
        outputs = layers.Dense(2, activation="softmax")(layers.GlobalAveragePooling1D()(x))
        model = tf.keras.Model(tokens, outputs)
        model.compile(tf.keras.optimizers.Adam(1e-4), "sparse_categorical_crossentropy")
        return model

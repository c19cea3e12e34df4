"""Thousands of sentences through a convolution, fed by a pipeline that looks up every word.

4,096 texts of 20 to 180 words, of 10,000 in all → ids, padded or cut to 60 → Embedding(10,000, 128) → Conv1D(64,
5) → MaxPooling1D(2) → Flatten → Dense 2, Adam, a batch of 64. `prepare` makes the ids of a text; it is mapped over
the texts, on the CPU in every lane.

Without prefetch, step and pipeline wait for each other; with it (p) they overlap, which gains most if both take
about as long and a core is free. Press k for the other knobs: parallel_calls prepares several texts at once, and
cache keeps the ids after the first epoch; then prefetch gains little.
"""

import numpy as np
import tensorflow as tf

from tfmon.trainer import Claim, Scenario


class TextConv(Scenario):
    batch_size = 64
    prefetch = "off"
    parallel_calls = "off"
    examples = 4_096
    contrast = ("prefetch=off", "prefetch=auto")
    source = "text on macOS, example 3"
    claims = (
        Claim(
            id="prefetch-hides-latency",
            says="Prefetch hides the time that the pipeline takes.",
            first="cpu,prefetch=auto",
            second="cpu,prefetch=off",
        ),
        Claim(
            id="cache-ids",
            says="Keeping the ids in a cache beats looking up the same words in every epoch.",
            first="cpu,cache=on",
            second="cpu,cache=off",
        ),
        Claim(
            id="prefetch-nothing-to-hide",
            says="Prefetch speeds up training.",
            first="cpu,cache=on,prefetch=auto",
            second="cpu,cache=on,prefetch=off",
            at_least=1.1,
            corrected="Only by what the pipeline takes: with the ids in a cache hardly anything is left to hide.",
        ),
        Claim(
            id="conv-gpu",
            says="With more data and a convolution the GPU is worth it.",
            first="gpu,prefetch=auto,parallel_calls=auto",
            second="cpu,prefetch=auto,parallel_calls=auto",
            needs="gpu",
        ),
    )

    def data(self):
        """Return (4096,) strings of random words and (4096,) int64 labels."""
        random = np.random.default_rng(0)
        vocabulary = [f"word{number}" for number in range(10_000 - 2)]  # ids 0 and 1: padding, and unknown words
        self.vectorizer = tf.keras.layers.TextVectorization(output_sequence_length=60, vocabulary=vocabulary)
        lengths = random.integers(20, 181, size=self.examples)
        texts = [
            " ".join(vocabulary[i] for i in random.integers(len(vocabulary), size=length)) for length in lengths
        ]
        return np.array(texts, dtype=object), random.integers(2, size=self.examples)

    def prepare(self, text, label):
        """Return the 60 ids of one text."""
        return self.vectorizer(text), label

    def model(self):
        """Make the net: 1,324,610 parameters, 1,280,000 of them in the embedding."""
        model = tf.keras.Sequential(
            [
                tf.keras.Input((60,), dtype="int64"),
                tf.keras.layers.Embedding(10_000, 128),
                tf.keras.layers.Conv1D(64, 5, activation="relu"),
                tf.keras.layers.MaxPooling1D(2),
                tf.keras.layers.Flatten(),
                tf.keras.layers.Dense(2, activation="softmax"),
            ]
        )
        model.compile(tf.keras.optimizers.Adam(), "sparse_categorical_crossentropy")
        return model

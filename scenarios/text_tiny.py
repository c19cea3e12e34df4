"""Four short sentences and a tiny text net: string work first, then hardly any arithmetic.

TextVectorization (1,000 tokens, 10 words) → Embedding 64 → GlobalAveragePooling1D → Dense 2 softmax, Adam, a batch
of 8. Splitting and looking up words has CPU kernels only. `variant=in-model` does it inside the step: on a GPU
lane TensorFlow silently uses the CPU for it and copies the ids in every step. `variant=in-tf-data` does it in the
pipeline, sentence by sentence, and the cache keeps the ids.

Expect the pipeline to win by little, and to lose without the cache (k): one call for a batch is cheaper than one a
sentence. Expect the GPU to lose to the CPU, and the throughput to rise almost in step with the batch (B): at 8
sentences all is dispatch. The knob `xla` is missing, because it refuses string ops.
"""

import numpy as np
import tensorflow as tf

from tfmon.trainer import Claim, Scenario


class TextTiny(Scenario):
    batch_size = 8
    cache = True
    examples = 1_024
    variants = ("in-model", "in-tf-data")
    without = ("xla",)
    contrast = ("variant=in-model", "variant=in-tf-data")
    source = "text on macOS, example 1"
    claims = (
        Claim(
            id="tiny-batch",
            source="text on macOS, example 2",
            says="A larger batch raises the throughput.",
            first="cpu,batch_size=128",
            second="cpu,batch_size=8",
            at_least=2.0,
        ),
        Claim(
            id="vectorize-in-pipeline",
            says="Making the ids in the pipeline, once, beats making them inside the model in every step.",
            first="cpu,variant=in-tf-data",
            second="cpu,variant=in-model",
        ),
        Claim(
            id="vectorize-in-pipeline-gpu",
            says="On a GPU as well, making the ids in the pipeline beats making them inside the model.",
            first="gpu,variant=in-tf-data",
            second="gpu,variant=in-model",
            needs="gpu",
        ),
        Claim(
            id="tiny-text-cpu-wins",
            source="text on macOS, example 2",
            says="For a handful of sentences the CPU is faster than the GPU.",
            first="cpu",
            second="gpu",
            needs="gpu",
        ),
        Claim(
            id="string-ops-cpu-only",
            says="TextVectorization under tf.device('/GPU:0') runs on the GPU.",
            corrected="String ops have CPU kernels only. Soft placement, on by default, moves them to the CPU "
            "without a word; with it off, or with jit_compile=True, the step is refused.",
        ),
    )

    def data(self):
        """Return (1024,) strings and (1024,) int64 labels, 1 for praise."""
        sentences = ["I love this film", "what a great day", "I did not like it", "this was a waste of time"]
        self.vectorizer = tf.keras.layers.TextVectorization(1_000, output_sequence_length=10)
        self.vectorizer.adapt(sentences)
        repeats = self.examples // len(sentences)
        return np.array(sentences * repeats), np.array([1, 1, 0, 0] * repeats)

    def prepare(self, sentence, label):
        """Make 10 ids of a sentence, unless the model does it."""
        return (sentence if self.knob("variant") == "in-model" else self.vectorizer(sentence)), label

    def model(self):
        """Make the net: 64,130 parameters."""
        in_model = self.knob("variant") == "in-model"
        front = [tf.keras.Input((), dtype="string"), self.vectorizer] if in_model else [tf.keras.Input((10,))]
        model = tf.keras.Sequential(
            [
                *front,
                tf.keras.layers.Embedding(1_000, 64),
                tf.keras.layers.GlobalAveragePooling1D(),
                tf.keras.layers.Dense(2, activation="softmax"),
            ]
        )
        model.compile(tf.keras.optimizers.Adam(), "sparse_categorical_crossentropy")
        return model

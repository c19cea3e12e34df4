"""An LSTM over long sequences: one short step of work after another, with little to do at once.

Sequences of 128 tokens → Embedding(1,000, 32) → LSTM 64 → Dense 2 softmax, Adam, a batch of 32. Every step of the
LSTM waits for the one before it, so a bigger device is not faster. Only each step's overhead can be saved.

`variant=loop` is a while loop in the graph, as Keras' LSTM is without cuDNN. `unrolled` makes 128 copies of the
cell: it runs well, but tracing takes seconds. `fused` is one kernel for the whole sequence: on a GPU cuDNN's, on a
CPU TensorFlow's BlockLSTM, because Keras silently uses the while loop there.

Raise sequence_length (k) and every step takes longer in proportion. Press B: only the batch is parallel work. The
knob xla is missing: XLA has neither fused kernel.
"""

import numpy as np
import tensorflow as tf

from tfmon.trainer import Claim, Knob, Scenario


class BlockLSTM(tf.keras.layers.Layer):
    """TensorFlow's fused LSTM: one op for all steps forward, and one backward."""

    def __init__(self, units):
        """Make a layer that returns the last output."""
        super().__init__()
        self.units = units

    def build(self, shape):
        """Make the weights of the four gates."""
        self.kernel = self.add_weight(shape=(shape[-1] + self.units, 4 * self.units))
        self.bias = self.add_weight(shape=(4 * self.units,), initializer="zeros")

    def call(self, inputs):
        """Run all steps. The op needs the time axis first, and peephole weights, here 0."""
        inputs = tf.transpose(inputs, (1, 0, 2))
        length, batch = tf.unstack(tf.shape(inputs, out_type=tf.int64)[:2])
        state, peephole = tf.zeros((batch, self.units)), tf.zeros((self.units,))
        outputs = tf.raw_ops.BlockLSTMV2(
            seq_len_max=length,
            x=inputs,
            cs_prev=state,
            h_prev=state,
            w=tf.convert_to_tensor(self.kernel),
            wci=peephole,
            wcf=peephole,
            wco=peephole,
            b=tf.convert_to_tensor(self.bias),
        )
        return outputs.h[-1]


class SequentialRNN(Scenario):
    batch_size = 32
    examples = 1_024
    variants = ("loop", "unrolled", "fused")
    knobs = (Knob("sequence_length", 128, "Tokens in a sequence, one after the other.", low=8, high=1024),)
    without = ("xla", "mixed_precision")
    contrast = ("variant=loop", "variant=fused")
    source = "text on macOS, bottleneck 4"
    claims = (
        Claim(
            id="fused-rnn-beats-loop",
            says="one fused kernel for the whole sequence is faster than a loop of small steps",
            first="cpu,variant=fused",
            second="cpu,variant=loop",
        ),
        Claim(
            id="unrolling-saves-the-loop",
            says="an unrolled LSTM is faster than the while loop of the same steps",
            first="cpu,variant=unrolled",
            second="cpu,variant=loop",
        ),
        Claim(
            id="rnn-is-not-parallel-work",
            says="the steps of an LSTM run one after the other: more cores do not help",
            first="cpu,variant=loop,threads=auto",
            second="cpu,variant=loop,threads=1",
            at_most=1.1,
        ),
        Claim(
            id="long-sequences-cost-in-proportion",
            says="four times the length takes about four times as long, as nothing of it runs in parallel",
            first="cpu,sequence_length=64",
            second="cpu,sequence_length=256",
            at_least=3,
        ),
        Claim(
            id="gpu-loses-on-an-unfused-rnn",
            says="without the fused kernel an LSTM is slower on a GPU than on the CPU",
            first="cpu,variant=loop",
            second="gpu,variant=loop",
            needs="gpu",
        ),
        Claim(
            id="cudnn-saves-the-gpu",
            says="the fused cuDNN kernel makes an LSTM several times faster on a GPU",
            first="gpu,variant=fused",
            second="gpu,variant=loop",
            at_least=3,
            needs="gpu",
        ),
    )

    def data(self):
        """Return (1024, sequence_length) int64 tokens and (1024,) int64 labels."""
        random = np.random.default_rng(0)
        x = random.integers(1_000, size=(self.examples, self.knob("sequence_length")))
        return x, random.integers(2, size=self.examples)

    def model(self):
        """Make the net: 56,962 parameters."""
        variant = self.knob("variant")
        if variant == "fused" and not tf.config.list_logical_devices("GPU"):
            lstm = BlockLSTM(64)
        else:
            lstm = tf.keras.layers.LSTM(64, unroll=variant == "unrolled", use_cudnn=variant == "fused")
        model = tf.keras.Sequential(
            [
                tf.keras.Input((self.knob("sequence_length"),), dtype="int64"),
                tf.keras.layers.Embedding(1_000, 32),
                lstm,
                tf.keras.layers.Dense(2, activation="softmax"),
            ]
        )
        model.compile(tf.keras.optimizers.Adam(), "sparse_categorical_crossentropy")
        return model

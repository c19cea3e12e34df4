"""Dense layers of 1,023 or of 1,024 units: the same work, in shapes that tensor cores like or not.

Features → three layers Dense relu → Dense 10, SGD, a batch of 256; `variant` is the number of features and units.
Tensor cores multiply blocks whose sides are multiples of 8 in 16 bits (of 4 in TF32, of 64 for the best kernels);
other shapes are padded or take slower kernels. A CPU has only vectors of 4 to 16 numbers.

On a GPU, try mixed_precision (k): it should gain more with 1,024 than with 1,023. On a CPU it gains only with
16-bit instructions (bfloat16 doubled the speed of one with AVX512-BF16).
"""

import numpy as np
import tensorflow as tf

from tfmon.trainer import Claim, Scenario


class TensorCoreShapes(Scenario):
    batch_size = 256
    examples = 4_096
    variants = ("1023", "1024")
    contrast = ("variant=1023", "variant=1024")
    source = "poor GPU performance, bottleneck 4"
    claims = (
        Claim(
            id="shapes-16-bit",
            says="In 16 bits a GPU is faster with dimensions that are multiples of 8.",
            first="gpu,variant=1024,mixed_precision=float16,batch_size=2048",
            second="gpu,variant=1023,mixed_precision=float16,batch_size=2048",
            at_least=1.1,
            needs="gpu",
        ),
        Claim(
            id="mixed-precision-gpu",
            says="Mixed precision makes a GPU faster.",
            first="gpu,variant=1024,mixed_precision=float16,batch_size=2048",
            second="gpu,variant=1024,batch_size=2048",
            at_least=1.1,
            needs="gpu",
        ),
        Claim(
            id="shapes-on-the-cpu",
            says="It is about tensor cores: a CPU is as fast with 1,023 as with 1,024.",
            first="cpu,variant=1024",
            second="cpu,variant=1023",
            at_most=1.1,
        ),
        Claim(
            id="mixed-precision-on-the-cpu",
            says="Mixed precision makes training faster.",
            first="cpu,variant=1024,mixed_precision=bfloat16",
            second="cpu,variant=1024",
            corrected="Where the device has 16-bit instructions. Without them numbers are converted to and fro.",
        ),
    )

    def data(self):
        """Return (4096, 1023 or 1024) float32 features and (4096,) int64 labels."""
        random = np.random.default_rng(0)
        x = random.random((self.examples, int(self.knob("variant"))), dtype=np.float32)
        return x, random.integers(10, size=self.examples)

    def model(self):
        """Make the net: about 3.2 million parameters."""
        width = int(self.knob("variant"))
        layers = [tf.keras.layers.Dense(width, activation="relu") for _ in range(3)]
        last = tf.keras.layers.Dense(10, activation="softmax")
        model = tf.keras.Sequential([tf.keras.Input((width,)), *layers, last])
        model.compile(tf.keras.optimizers.SGD(), "sparse_categorical_crossentropy")
        return model

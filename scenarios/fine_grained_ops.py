"""A hundred tiny matrix operations in a step: nearly all of it is overhead.

100 additions, or 100 matrix products, of `size` × `size` matrices one after the other, without training. A 10 × 10
addition is 100 flops; starting it costs thousands of times more, and even more on a GPU, as a kernel launch.
Inside one tf.function (graph) Python is not involved; with XLA (k, then xla) the additions become one kernel.
Raise `size` (k) until the arithmetic outweighs the overhead and a GPU pays. At 4096 a step of products is 14
trillion flops: minutes on a CPU. A step counts as one example.
"""

import numpy as np
import tensorflow as tf

from tfmon.trainer import Claim, Knob, Scenario

OPERATIONS = 100


class FineGrainedOps(Scenario):
    variants = ("add", "matmul")
    knobs = (Knob("size", 10, "Rows and columns of each matrix.", low=10, high=4096),)
    without = ("mixed_precision",)
    contrast = ("graph=off", "graph=on")
    source = "poor GPU performance, example 3"
    claims = (
        Claim(
            id="fine-grained-ops-are-overhead",
            says="many small operations are all overhead: one graph of them is far faster than one by one",
            first="cpu,graph=on",
            second="cpu,graph=off",
            at_least=3,
        ),
        Claim(
            id="small-matmul-costs-like-small-add",
            says="at 10 × 10 a product, 20 times the arithmetic of an addition, costs less than twice as much",
            first="cpu,variant=add,graph=off",
            second="cpu,variant=matmul,graph=off",
            at_most=2.0,
        ),
        Claim(
            id="arithmetic-counts-when-large",
            says="at 512 × 512 the arithmetic counts: an addition is far cheaper than a matrix product",
            first="cpu,variant=add,size=512",
            second="cpu,variant=matmul,size=512",
            at_least=3,
        ),
        Claim(
            id="xla-fuses-small-ops",
            says="XLA makes one kernel of many additions",
            first="cpu,xla=on",
            second="cpu,graph=on",
            at_least=1.2,
        ),
        Claim(
            id="tiny-ops-lose-on-a-gpu",
            says="tiny operations one by one are slower on a GPU than on the CPU",
            first="cpu,graph=off",
            second="gpu,graph=off",
            needs="gpu",
        ),
    )

    def step(self, model):
        """Chain the operations, so that TensorFlow skips none."""
        size = self.knob("size")
        random = np.random.default_rng(0)
        values = random.random((2, size, size), dtype=np.float32) * 2 / size  # keeps the size of products
        start, other = tf.identity(values)  # on the lane's device
        combine = tf.add if self.knob("variant") == "add" else tf.matmul

        def chain():
            matrix = start
            for _ in range(OPERATIONS):
                matrix = combine(matrix, other)
            return tf.reduce_mean(matrix)

        return chain

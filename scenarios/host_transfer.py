"""The same step, fed from the host in every step or from a batch that stays on the device.

Examples of 256 KiB → GlobalAveragePooling1D → Dense 10, SGD, a batch of 32: 8 MiB a step, and hardly any
arithmetic. `variant=host-feed` makes a new batch in every step, as any pipeline does; `host-batch` keeps one in
the host's memory; `device-resident` copies it to the lane's device once.

On a GPU lane `host-batch` and `device-resident` differ by the copy over the bus; on a CPU lane they are equal.
`host-feed` also gathers the batch in memory, so a slow feed need not be a slow bus. Larger examples (element_kib)
make all of it worse. Prefetch (p) hides the gathering if a core is free, but not the copy.
"""

import itertools

import numpy as np
import tensorflow as tf

from tfmon.trainer import Claim, Knob, Scenario, ScenarioError


class HostTransfer(Scenario):
    batch_size = 32
    prefetch = "off"
    examples = 64
    variants = ("host-feed", "host-batch", "device-resident")
    knobs = (Knob("element_kib", 256, "Size of one example in KiB.", low=1, high=4096),)
    contrast = ("variant=host-feed", "variant=device-resident")
    source = "poor GPU performance, bottleneck 1"
    claims = (
        Claim(
            id="feeding-costs",
            says="Feeding large batches from the host's memory in every step costs more than training on them.",
            first="cpu,variant=device-resident",
            second="cpu,variant=host-feed",
            at_least=2.0,
        ),
        Claim(
            id="no-bus-on-the-cpu",
            says="It is the copy to the device that costs: a CPU lane, which makes none, loses nothing.",
            first="cpu,variant=device-resident",
            second="cpu,variant=host-batch",
            at_most=1.1,
        ),
        Claim(
            id="copy-to-the-gpu",
            says="Copying the batch to the GPU in every step costs more than training on it.",
            first="gpu,variant=device-resident",
            second="gpu,variant=host-batch",
            at_least=2.0,
            needs="gpu",
        ),
        Claim(
            id="prefetch-stays-on-the-host",
            says="dataset.prefetch(AUTOTUNE) brings the batches to the GPU ahead of the step.",
            corrected="It keeps them in the host's memory; the copy is made when the step is called. What copies "
            "ahead is tf.data.experimental.prefetch_to_device.",
        ),
    )

    def data(self):
        """Return (64, 4 * element_kib, 64) float32 examples and (64,) int64 labels."""
        random = np.random.default_rng(0)
        x = random.random((self.examples, 4 * self.knob("element_kib"), 64), dtype=np.float32)
        return x, random.integers(10, size=self.examples)

    def feed(self, batches):
        """Return every batch, or repeat the first one, from the host or the device."""
        feed = super().feed(batches)
        if self.knob("variant") == "host-feed":
            return feed
        batch = next(feed)
        if self.knob("variant") == "device-resident":
            batch = tf.nest.map_structure(tf.identity, batch)  # runs on the lane's GPU if it has one
        return itertools.repeat(batch)

    def step(self, model):
        """Return the usual step; raises ScenarioError if the batch is on one device of several."""
        if self.knob("variant") == "device-resident" and tf.distribute.get_strategy().num_replicas_in_sync > 1:
            raise ScenarioError("variant=device-resident keeps the batch on one device, and this lane has several")
        return super().step(model)

    def model(self):
        """Make the net: 650 parameters, so reading the batch is most of the step."""
        model = tf.keras.Sequential(
            [
                tf.keras.Input((None, 64)),
                tf.keras.layers.GlobalAveragePooling1D(),
                tf.keras.layers.Dense(10, activation="softmax"),
            ]
        )
        model.compile(tf.keras.optimizers.SGD(), "sparse_categorical_crossentropy")
        return model

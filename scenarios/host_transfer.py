"""The same step, fed from the host in every step or from a batch that stays on the device.

Examples of 256 KiB → GlobalAveragePooling1D → Dense 10, SGD, a batch of 32: 8 MiB a step, and hardly anything to
compute with them. `variant=host-feed` makes a new batch in every step, as any pipeline does; `host-batch` makes
one and keeps it in the host's memory; `device-resident` copies it to the lane's device once.

On a GPU lane the step from `host-batch` to `device-resident` is the copy over the bus. A CPU lane has no
bus, and the two are equal. The extra cost of `host-feed` is gathering the batch in memory. So a slow feed is not
yet a slow bus. Larger examples (element_kib, which restarts the lane) make all of it worse. Prefetch (p) hides
the gathering where a core is free for it, but not the copy: it keeps its batches in the host's memory.
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
        """Make random examples of element_kib: (64, 4 * element_kib, 64) float32 and (64,) int64."""
        random = np.random.default_rng(0)
        x = random.random((self.examples, 4 * self.knob("element_kib"), 64), dtype=np.float32)
        return x, random.integers(10, size=self.examples)

    def feed(self, batches):
        """Take every batch, or the first one again and again: as it is, or from the device."""
        feed = super().feed(batches)
        if self.knob("variant") == "host-feed":
            return feed
        batch = next(feed)
        if self.knob("variant") == "device-resident":
            batch = tf.nest.map_structure(tf.identity, batch)  # runs on the lane's GPU if it has one
        return itertools.repeat(batch)

    def step(self, model):
        """Train by the usual step; on one device, if that is where the batch is."""
        if self.knob("variant") == "device-resident" and tf.distribute.get_strategy().num_replicas_in_sync > 1:
            raise ScenarioError("variant=device-resident keeps the batch on one device, and this lane has several")
        return super().step(model)

    def model(self):
        """Make the net: 650 parameters, so that reading the batch is most of the step."""
        model = tf.keras.Sequential(
            [
                tf.keras.Input((None, 64)),
                tf.keras.layers.GlobalAveragePooling1D(),
                tf.keras.layers.Dense(10, activation="softmax"),
            ]
        )
        model.compile(tf.keras.optimizers.SGD(), "sparse_categorical_crossentropy")
        return model

"""A pipeline that works 1 ms on every image: the net waits for it, on any device.

64×64×3 images, brightness augmentation, Conv2D(32, 3) → MaxPooling → Flatten → Dense 10, Adam, a batch of 32, no
prefetch. `variant=map` augments in `prepare`, which is mapped over the images on the host's CPU, also in a GPU
lane: `parallel_calls=off` is the serial map and `auto` the parallel one. `variant=in-step` augments the whole
batch inside the step, on the lane's device; parallel_calls and cache then have no effect.

The 1 ms is a small sort in TensorFlow ops, repeated a fixed number of times, that uses one core without the GIL.
The article's `time.sleep` costs nothing (`variant=sleep`): a mapped function is traced into a graph once, and
sleeps only then.

Watch the input share. Press p for prefetch, and k for the other knobs: lower cpu_cost_ms until the step is the
limit.
"""

import time

import numpy as np
import tensorflow as tf

from tfmon.trainer import Claim, Knob, Scenario

ROUNDS_PER_MS = 100
"""Rounds of `toil` that take about 1 ms on a core of 3 GHz. A constant: all lanes must do the same work."""


def shift_brightness(images):
    """Add a random value to an image, or to each image of a batch."""
    shape = tf.concat([tf.shape(images)[:-3], [1, 1, 1]], axis=0)
    return tf.clip_by_value(images + tf.random.uniform(shape, -0.1, 0.1), 0.0, 1.0)


def toil(images, rounds):
    """Sort 512 values of each image repeatedly, on one core; return the images unchanged."""
    values = tf.reshape(images, [-1, 64 * 64 * 3])[:, :512]
    _, values = tf.while_loop(
        lambda done, _: done < rounds,
        lambda done, values: (done + 1, tf.sort(tf.reverse(values, [-1]))),
        [0, values],
    )
    return images + 1e-30 * tf.reduce_min(values)  # too small to count, but TensorFlow cannot drop it


class SlowPreprocess(Scenario):
    batch_size = 32
    prefetch = "off"
    parallel_calls = "off"
    examples = 512
    variants = ("map", "in-step", "sleep")
    knobs = (
        Knob("cpu_cost_ms", 1.0, "Work on each image, in milliseconds of a core.", kind="live", low=0, high=1000),
    )
    contrast = ("parallel_calls=off", "parallel_calls=auto")
    source = "poor GPU performance, example 2"
    claims = (
        Claim(
            id="parallel-map",
            says="A parallel map beats a serial one.",
            first="cpu,parallel_calls=auto",
            second="cpu,parallel_calls=off",
        ),
        Claim(
            id="slow-map-starves",
            source="poor GPU performance, example 1",
            says="A slow serial map, not the net, decides how fast training is.",
            first="cpu,cpu_cost_ms=0",
            second="cpu,cpu_cost_ms=1",
            at_least=2.0,
        ),
        Claim(
            id="augment-in-step",
            says="Augmenting whole batches inside the step beats a serial map over the images.",
            first="cpu,variant=in-step",
            second="cpu,variant=map",
        ),
        Claim(
            id="augment-on-gpu",
            says="Augmenting on the GPU, inside the step, beats even a parallel map on the host.",
            first="gpu,variant=in-step",
            second="gpu,variant=map,parallel_calls=auto,prefetch=auto",
            needs="gpu",
        ),
        Claim(
            id="starved-gpu",
            source="poor GPU performance, example 1",
            says="Behind a slow serial map a GPU is hardly faster than the CPU.",
            first="gpu",
            second="cpu",
            at_most=1.5,
            needs="gpu",
        ),
        Claim(
            id="sleep-in-map",
            source="poor GPU performance, example 1",
            says="time.sleep(0.001) in a mapped function delays every image by 1 ms.",
            first="cpu,cpu_cost_ms=0",
            second="cpu,variant=sleep,cpu_cost_ms=1",
            at_least=2.0,
            corrected="The function is traced into a graph once, and sleeps only then: both lanes are as fast.",
        ),
        Claim(
            id="map-runs-on-the-host",
            says="dataset.map with AUTOTUNE and TensorFlow ops augments on the GPU.",
            corrected="Datasets have CPU kernels only, and AUTOTUNE sets a number of threads: the host does it "
            "all, unless the function itself names a device.",
        ),
    )

    def data(self):
        """Return (512, 64, 64, 3) float32 images and (512,) int64 labels."""
        random = np.random.default_rng(0)
        images = random.random((self.examples, 64, 64, 3), dtype=np.float32)
        return images, random.integers(10, size=self.examples)

    def rounds(self):
        """Return the number of rounds of `toil`."""
        return tf.constant(round(self.knob("cpu_cost_ms") * ROUNDS_PER_MS), tf.int32)

    def prepare(self, image, label):
        """Augment one image, unless the step does it."""
        if self.knob("variant") == "in-step":
            return image, label
        if self.knob("variant") == "sleep":
            time.sleep(self.knob("cpu_cost_ms") / 1e3)  # wrong: this runs while the function is traced
            return shift_brightness(image), label
        if self.knob("cpu_cost_ms") == 0:
            return shift_brightness(image), label
        return toil(shift_brightness(image), self.rounds()), label

    def batches(self, examples, batch_size):
        """Add the number of rounds to each batch, because the knob is live."""
        batches = super().batches(examples, batch_size)
        if self.knob("variant") != "in-step":
            return batches
        rounds = self.rounds()
        return batches.map(lambda images, labels: (images, labels, rounds))

    def step(self, model):
        """Return the step, with `variant=in-step` after augmentation."""
        train = super().step(model)
        if self.knob("variant") != "in-step":
            return train
        return lambda images, labels, rounds: train(toil(shift_brightness(images), rounds), labels)

    def model(self):
        """Make the net: 308,426 parameters."""
        model = tf.keras.Sequential(
            [
                tf.keras.Input((64, 64, 3)),
                tf.keras.layers.Conv2D(32, 3, activation="relu"),
                tf.keras.layers.MaxPooling2D(),
                tf.keras.layers.Flatten(),
                tf.keras.layers.Dense(10, activation="softmax"),
            ]
        )
        model.compile(tf.keras.optimizers.Adam(), "sparse_categorical_crossentropy")
        return model

"""ResNet-50 on images of 224 × 224: a model of real size, whose step takes seconds on a CPU.

64 random images → `keras.applications.ResNet50(weights=None)`: 53 convolutions, 25.6 million parameters, 1,000
classes, SGD with momentum, a batch of 16. A step is some 370 billion operations: 3 to 10 s on two cores.

A slice lasts as long as a step. During the first one, the verdict is a lower bound; three steps of the slower lane
give an interval. Press k for image_size: at 112 a step takes a quarter of the time.
"""

import numpy as np
import tensorflow as tf

from tfmon.trainer import Claim, Knob, Scenario


class ResNet50(Scenario):
    batch_size = 16
    examples = 64
    knobs = (Knob("image_size", 224, "Height and width of the images.", low=32, high=512),)
    contrast = ("threads=1", "threads=auto")
    source = "models of real size"
    claims = (
        Claim(
            id="resnet-uses-all-cores",
            says="the convolutions of a ResNet-50 keep all cores busy: all train faster than one",
            first="cpu,threads=auto",
            second="cpu,threads=1",
            at_least=1.3,
            seconds=150,
        ),
        Claim(
            id="resnet-needs-a-gpu",
            says="a GPU trains a ResNet-50 at least ten times as fast as the CPU",
            first="gpu",
            second="cpu",
            at_least=10,
            needs="gpu",
            seconds=150,
        ),
    )

    def data(self):
        """Return (64, image_size, image_size, 3) float32 images and (64,) int64 labels."""
        random, size = np.random.default_rng(0), self.knob("image_size")
        images = random.random((self.examples, size, size, 3), dtype=np.float32)
        return images, random.integers(1_000, size=self.examples)

    def model(self):
        """Make the net: 25,636,712 parameters."""
        size = self.knob("image_size")
        model = tf.keras.applications.ResNet50(weights=None, input_shape=(size, size, 3))
        model.compile(tf.keras.optimizers.SGD(0.01, momentum=0.9), "sparse_categorical_crossentropy")
        return model

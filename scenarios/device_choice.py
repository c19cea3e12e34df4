"""The same training step on every device that TensorFlow sees.

32×32 colour images → Conv2D(32, 3) → Conv2D(64, 3) → MaxPooling → Flatten → Dense 10, Adam, a batch of 64: about a
thousand million multiplications forward, enough for a GPU. By default the CPU races the first GPU, CUDA's or, with
tensorflow-metal, Apple's. With several GPUs, add `--lane gpu:1`. Each lane is a process that sees one device and
makes its data, model and optimizer there: nothing is copied between devices.

Without a GPU, one thread races all cores. With two cores, or on a busy machine, the difference is small:
TensorFlow also runs operations side by side, which `threads` does not limit. Press b: a small batch leaves cores
idle, and a GPU even more so.
"""

import numpy as np
import tensorflow as tf

from tfmon.trainer import Claim, Scenario


class DeviceChoice(Scenario):
    batch_size = 64
    examples = 1_024
    contrast = ("threads=1", "threads=auto")
    source = "load the GPU of an M1 more, example 3"
    claims = (
        Claim(
            id="large-step-uses-all-cores",
            says="a convolution on a batch of 64 is parallel work: all cores beat one",
            first="cpu,threads=auto",
            second="cpu,threads=1",
        ),
        Claim(
            id="gpu-wins-on-large-steps",
            says="a step with enough work is several times faster on the GPU",
            first="gpu",
            second="cpu",
            at_least=3,
            needs="gpu",
        ),
        Claim(
            id="metal-wins-on-large-steps",
            says="a step with enough work is faster on the GPU of an M1 than on its CPU",
            first="gpu",
            second="cpu",
            needs="mac",
        ),
        Claim(
            id="hiding-the-gpu-selects-metal",
            says="tf.config.set_visible_devices([], 'GPU') selects MPS",
            corrected="it hides every GPU and leaves the CPU; Metal's device has the type GPU too, and MPS is "
            "PyTorch's name: list_physical_devices('MPS') is empty",
        ),
        Claim(
            id="cuda-on-apple-silicon",
            says="on an M1 a CUDA driver is to be installed",
            corrected="there is none: CUDA for macOS ended with 10.2, and never ran on Apple Silicon; the Mac's "
            "GPU needs tensorflow-metal, which works up to TensorFlow 2.19",
        ),
        Claim(
            id="device-scope-around-fit",
            says="`with tf.device(…)` around model.fit trains on that device",
            corrected="half true: the ops follow the scope, but the weights stay where they were made, and cross "
            "over in every step; make, compile and fit the model inside the scope, or in a process of its own",
        ),
        Claim(
            id="one-function-for-both-devices",
            says="one tf.function can be timed on the CPU and then on the GPU",
            corrected="its variables stay on the device where they were made, so the other loop copies all "
            "weights in and all updates out in each step, and both train the same weights",
        ),
        Claim(
            id="xla-is-off-unless-asked-for",
            says="the same Keras code runs the same graph on the CPU and on the GPU",
            corrected="jit_compile='auto' turns XLA on wherever TensorFlow lists a CUDA GPU, even a hidden one, "
            "and off elsewhere; tfmon's knob xla is off in every lane unless you say otherwise",
        ),
    )

    def data(self):
        """Return (1024, 32, 32, 3) float32 images and (1024,) int64 labels."""
        random = np.random.default_rng(0)
        x = random.random((self.examples, 32, 32, 3), dtype=np.float32)
        return x, random.integers(10, size=self.examples)

    def model(self):
        """Make the net: 144,842 parameters."""
        model = tf.keras.Sequential(
            [
                tf.keras.Input((32, 32, 3)),
                tf.keras.layers.Conv2D(32, 3, activation="relu"),
                tf.keras.layers.Conv2D(64, 3, activation="relu"),
                tf.keras.layers.MaxPooling2D(),
                tf.keras.layers.Flatten(),
                tf.keras.layers.Dense(10, activation="softmax"),
            ]
        )
        model.compile(tf.keras.optimizers.Adam(), "sparse_categorical_crossentropy")
        return model

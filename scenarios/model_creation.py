"""Creating small models again and again: Python's work, not the device's.

A step makes one model of 100 features → Dense 128 relu → Dense 10, compiled with Adam 1e-3. Nothing is trained.
`variant=cold` clears Keras' session and builds the model from its layers; `warm` clones an existing model
(`tf.keras.models.clone_model`: the same layers, new random weights).

The article's "first" is the very first model of a process, which also starts the device and loads parts of Keras.
It is made before a lane has warmed up, so no race can repeat it; cold is closest. Nearly all of a step is Python
on one core: a GPU is not faster, and slower if every initializer is a kernel launch. Raise depth (k) and a step
takes longer in proportion; width changes little until filling the weights counts. A step counts as one example.
"""

import itertools

import tensorflow as tf

from tfmon.trainer import Claim, Knob, Scenario, runs_in_python


class ModelCreation(Scenario):
    variants = ("cold", "warm")
    knobs = (
        Knob("width", 128, "Units of each hidden layer.", low=1, high=8192),
        Knob("depth", 1, "Hidden layers.", low=1, high=64),
    )
    without = ("graph", "xla", "mixed_precision", "sync_every_step")
    contrast = ("variant=cold", "variant=warm")
    source = "creating and training small models, example 1"
    claims = (
        Claim(
            id="first-creation-is-slower",
            says="building a model again is slower than cloning an existing one",
            first="cpu,variant=warm",
            second="cpu,variant=cold",
        ),
        Claim(
            id="cloning-is-not-parallel-work",
            says="cloning models is not parallel work: more cores do not help",
            first="cpu,variant=warm,threads=auto",
            second="cpu,variant=warm,threads=1",
            at_most=1.1,
        ),
        Claim(
            id="cloning-costs-by-the-layer",
            says="a clone costs by its number of layers, hardly by their size: 128 units or 512 are one",
            first="cpu,variant=warm,width=128",
            second="cpu,variant=warm,width=512",
            at_most=1.25,
        ),
        Claim(
            id="creating-models-is-slower-on-a-gpu",
            says="small models are created more slowly on a GPU than on the CPU",
            first="cpu,variant=warm",
            second="gpu,variant=warm",
            needs="gpu",
        ),
    )

    def step(self, model):
        """Return a function that makes one model."""
        prototype = self.build()

        numbers = itertools.count(1)

        @runs_in_python
        def clone():
            if next(numbers) % 100 == 0:
                tf.keras.utils.clear_session(free_memory=False)  # TensorFlow keeps the clones' weights
            self.compile(tf.keras.models.clone_model(prototype))

        @runs_in_python
        def build():
            tf.keras.utils.clear_session(free_memory=False)
            self.compile(self.build())

        return clone if self.knob("variant") == "warm" else build

    def build(self):
        """Make the net: 14,218 parameters by default."""
        hidden = [tf.keras.layers.Dense(self.knob("width"), activation="relu") for _ in range(self.knob("depth"))]
        output = tf.keras.layers.Dense(10, activation="softmax")
        return tf.keras.Sequential([tf.keras.Input((100,)), *hidden, output])

    def compile(self, model):
        """Compile a model."""
        model.compile(tf.keras.optimizers.Adam(1e-3), "sparse_categorical_crossentropy")

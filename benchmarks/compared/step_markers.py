"""Adds the step markers that XProf needs for `fit` of Keras 3; TensorBoard's callback adds none."""

import keras
import tensorflow as tf


class StepMarkers(keras.callbacks.Callback):
    """Profiles the steps from the first to the last of each range, such as 20:60,420:460; each has a marker."""

    def __init__(self, ranges, folder="logs"):
        super().__init__()
        pairs = [map(int, one.split(":")) for one in ranges.split(",")]
        self.ends, self.folder, self.step = dict(pairs), folder, 0

    def on_train_batch_begin(self, batch, logs=None):
        self.step += 1
        if self.step in self.ends:
            tf.profiler.experimental.start(f"{self.folder}/{self.step}")
        self.marker = tf.profiler.experimental.Trace("train", step_num=self.step, _r=1)
        self.marker.__enter__()

    def on_train_batch_end(self, batch, logs=None):
        self.marker.__exit__(None, None, None)
        if self.step in self.ends.values():
            tf.profiler.experimental.stop()


def profiling(ranges):
    """Return the callbacks of a script: none without ranges."""
    return [StepMarkers(ranges)] if ranges else []

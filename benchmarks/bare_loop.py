"""Trains a scenario in a plain TensorFlow loop with its own clock and prints examples/s, without code of a lane.

    python benchmarks/bare_loop.py small-dense [--seconds 5]

The data, the model, the step, its settings, and its graph, which takes batches of any size, are the scenario's.
Loop and clock are written here: 2 s of steps that do not count, then whole steps until the time is over, and the
last loss is read.
"""

from __future__ import annotations

import json
import sys
import time

from common import options_of

from tfmon.catalog import find_scenario
from tfmon.trainer.scenario import load

WARM_UP_S = 2.0


def main() -> None:
    name = sys.argv.pop(1)
    seconds = options_of(__doc__, seconds=5.0).seconds
    import tensorflow as tf

    found = find_scenario(name)
    scenario = load(found.path)(found.defaults())
    data, model = scenario.data(), scenario.model()
    dataset = data if isinstance(data, tf.data.Dataset) else tf.data.Dataset.from_tensor_slices(data)
    dataset = scenario.batches(dataset, scenario.batch_size)
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    if scenario.prefetch != "off":
        dataset = dataset.prefetch(tf.data.AUTOTUNE if scenario.prefetch == "auto" else int(scenario.prefetch))
    signature = [tf.TensorSpec([None, *part.shape[1:]], part.dtype) for part in dataset.element_spec]
    step = tf.function(scenario.step(model), input_signature=signature)
    batches = iter(dataset.with_options(options))

    def train(seconds: float) -> float:
        """Train for some seconds, and return the steps per second."""
        began, steps = time.perf_counter(), 0
        while time.perf_counter() < began + seconds:
            loss = step(*next(batches))
            steps += 1
        loss.numpy()
        return steps / (time.perf_counter() - began)

    train(WARM_UP_S)
    print(json.dumps({"examples_per_s": scenario.batch_size * train(seconds)}))


if __name__ == "__main__":
    main()

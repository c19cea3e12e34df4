"""Trains scenarios on logical devices of the CPU in a child process, and prints the results."""

import itertools
import json
from typing import Any

import keras
import numpy as np

from tfmon.trainer import Scenario, runtime
from tfmon.trainer.batch_feed import Pipelines, count_examples
from tfmon.trainer.runtime import Replicas
from tfmon.trainer.setups import Steps

DEVICES = 3
runtime.choose_device("cpu", count=DEVICES)
TOGETHER = Replicas("cpu", DEVICES)
"""A process has one strategy: the collectives of two would meet."""
DEFAULTS = {"batch_size": 12, "prefetch": "off", "graph": True, "xla": False, "mixed_precision": "off"}


class Net(Scenario):
    """A net with all that replicas may disagree on: dropout, batch normalisation, a penalty on weights."""

    plain = True

    def data(self) -> Any:
        random = np.random.default_rng(1)
        return random.random((96, 20), dtype=np.float32), random.integers(10, size=96)

    def model(self) -> Any:
        layers = [keras.Input((20,)), keras.layers.Dense(64, "relu", kernel_regularizer="l2")]
        if not self.plain:
            layers += [keras.layers.BatchNormalization(), keras.layers.Dropout(0.3)]
        model = keras.Sequential([*layers, keras.layers.Dense(10, "softmax")])
        model.compile(keras.optimizers.Adam(1e-2), "sparse_categorical_crossentropy")
        return model


class Noisy(Net):
    """With layers whose replicas see other examples."""

    plain = False


def trained(kind: type[Scenario], steps: int = 16, devices: int = DEVICES, **change: Any) -> dict[str, Any]:
    """Train from one seed; return losses, examples, and the weights of each replica."""
    keras.utils.set_random_seed(0)
    settings = {**DEFAULTS, **change}
    pipelines = Pipelines(kind(settings), devices)
    maker = Steps(pipelines._scenario, pipelines.signature(settings), TOGETHER if devices > 1 else None)
    maker.check(settings)
    feed, step = pipelines.open(settings), maker.make(settings)
    batches = list(itertools.islice(feed.batches, steps))
    losses = [float(step(*batch)) for batch in batches]
    variables = [variable.value for variable in maker._model.trainable_variables]
    weights = [[np.asarray(value) for value in getattr(mirrored, "values", [mirrored])] for mirrored in variables]
    return {
        "losses": losses,
        "examples": sum(map(count_examples, batches)),
        "replicas": sorted({len(values) for values in weights}),
        "apart": max(float(np.ptp(np.stack(values), axis=0).max()) for values in weights),
        "weights": [float(np.abs(values[0]).sum()) for values in weights],
    }


def main() -> None:
    changes: dict[str, dict[str, Any]] = {
        "plain": {}, "eager": {"graph": False}, "bfloat16": {"mixed_precision": "bfloat16"},
        "per replica": {"batch_size": 4, "batch_scope": "per-replica"},
    }  # fmt: skip
    found: dict[str, Any] = {name: trained(Net, **change) for name, change in changes.items()}
    found["alone"] = trained(Net, devices=1)
    found["noisy"] = trained(Noisy)
    print(json.dumps(found))


if __name__ == "__main__":
    main()

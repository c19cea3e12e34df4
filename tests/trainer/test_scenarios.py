"""Every scenario that comes with tfmon: it is read, built in each variant, and trains."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.waiting import HANGS_S

from tfmon.catalog import ScenarioInfo, read_scenario
from tfmon.cli.scenarios import write
from tfmon.model.spec import parse_lane
from tfmon.trainer.pipeline import Pipelines
from tfmon.trainer.scenario import load
from tfmon.trainer.setups import Steps

pytestmark = [pytest.mark.tensorflow, pytest.mark.trainer]

FOLDER = Path(__file__).parents[2] / "scenarios"
SCENARIOS = [read_scenario(path, "built-in") for path in sorted(FOLDER.glob("*.py"))]
SMALL = {
    "sequential-rnn": {"sequence_length": 8},
    "resnet50": {"image_size": 32, "batch_size": 2},
    "transformer": {"sequence_length": 8, "blocks": 1},
}
"""Settings that make building quick and change nothing else."""


def lanes() -> list[Any]:
    """Return each scenario with each of its variants, and with the settings of its contrast."""
    found = {}
    for info in SCENARIOS:
        variants = [knob.choices for knob in info.knobs if knob.name == "variant"]
        settings = [{"variant": variant} for choices in variants for variant in choices]
        settings += [dict(parse_lane(f"cpu,{side}", info.knobs).settings) for side in info.contrast]
        for each in settings:
            found[f"{info.name}-{'-'.join(map(str, each.values()))}"] = info, {**each, **SMALL.get(info.name, {})}
    return [pytest.param(*each, id=name) for name, each in found.items()]


def train(info: ScenarioInfo, settings: dict[str, Any], steps: int = 3) -> list[Any]:
    """Build a scenario as a lane does, and return the losses of its first steps."""
    settings = {**info.defaults(), **settings}
    scenario = load(info.path)(settings)
    pipelines = Pipelines(scenario)
    pipelines.check(settings)
    maker = Steps(scenario, pipelines.signature(settings))
    maker.check(settings)
    feed, step = pipelines.open(settings), maker.make(settings)
    return [step(*batch) for batch in itertools.islice(feed.batches, steps)]


def test_the_table_of_scenarios_is_there() -> None:
    assert {info.name for info in SCENARIOS} == {
        "text-tiny", "text-conv", "slow-preprocess", "fine-grained-ops", "host-transfer", "op-placement",
        "tensor-core-shapes", "sequential-rnn", "model-creation", "small-dense", "large-dense", "python-feed",
        "eager-graph", "device-choice", "retracing", "resnet50", "transformer",
    }  # fmt: skip
    for info in SCENARIOS:
        assert 10 < len(info.title) <= 100 and len(info.doc) > 100 and len(info.contrast) == 2, info.name


@pytest.mark.parametrize(("info", "settings"), lanes())
def test_a_scenario_trains(tf: Any, info: ScenarioInfo, settings: dict[str, Any]) -> None:
    losses = train(info, settings)
    assert len(losses) == 3
    for loss in losses:
        assert loss is None or np.isfinite(np.mean(loss))


def test_the_starter_file_trains(tf: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    info = read_scenario(write("my-net").resolve(), "file")
    assert all(np.isfinite(train(info, {})))


def test_claims_have_ids_of_their_own_and_lanes_that_exist() -> None:
    claims = [(info, claim) for info in SCENARIOS for claim in info.claims]
    assert len(claims) >= 20
    assert len({claim.id for _, claim in claims}) == len(claims)
    for info, claim in claims:
        assert claim.source and claim.says
        assert bool(claim.first) == bool(claim.second)
        assert claim.first or claim.corrected, claim.id
        for lane in (claim.first, claim.second):
            if lane:
                spec = parse_lane(lane, info.knobs)
                assert spec.kind == "cpu" or claim.needs in ("gpu", "mac"), claim.id


# ---------------------------------------------------------------- what the `corrected` claims say


TWO_CPUS = """
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
"""


@pytest.mark.parametrize(
    "op",
    [
        "StringLower", "StringSplitV2", "StaticRegexReplace", "LookupTableFindV2",
        "MapDataset", "ParallelMapDatasetV2", "BatchDatasetV2",
    ],
)  # fmt: skip
def test_strings_and_datasets_have_kernels_for_the_cpu_only(tf: Any, op: str) -> None:
    from tensorflow.python.framework import kernels

    assert {kernel.device_type for kernel in kernels.get_registered_kernels_for_op(op).kernel} == {"CPU"}


def test_prefetch_keeps_its_batches_in_the_hosts_memory(tf: Any) -> None:
    batches = tf.data.Dataset.from_tensor_slices(np.zeros(8)).batch(4).prefetch(tf.data.AUTOTUNE)
    assert next(iter(batches)).device.endswith("CPU:0")


def test_where_functions_variables_and_weights_are_with_two_devices_and_without_a_gpu() -> None:
    """Two CPUs stand for a CPU and a GPU, in a process whose TensorFlow has them."""
    code = (
        TWO_CPUS
        + """
tf.config.set_visible_devices([], "GPU")
print(tf.config.list_physical_devices("MPS"), (tf.constant(1.0) + 1).device)
with tf.device("CPU:0"):
    weights = tf.Variable(tf.ones((4, 4)))
step = tf.function(lambda x: tf.matmul(x, weights))
with tf.device("CPU:1"):
    result = step(tf.ones((4, 4)))
print(weights.device, result.device)
model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(2)])
model.compile("sgd", "mse")
with tf.device("CPU:1"):
    model.fit(tf.ones((8, 4)), tf.ones((8, 2)), verbose=0)
print({weight.value.device for weight in model.weights})
"""
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=HANGS_S, check=False
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    hidden, function, fit = done.stdout.splitlines()
    assert hidden.startswith("[] ") and hidden.endswith("device:CPU:0"), "the CPU is left, and no MPS"
    variable, result = function.split()
    assert variable.endswith("CPU:0") and result.endswith("CPU:1"), "a function computes where it is called"
    assert "CPU:0" in fit and "CPU:1" not in fit, "a scope around fit leaves the weights where the model was built"

"""What the scenarios' `corrected` claims say, shown where a CPU can show it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.trainer

TWO_CPUS = """
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
"""


def on_two_cpus(code: str) -> str:
    """Run code in a process whose TensorFlow has two CPUs: they stand for a CPU and a GPU."""
    done = subprocess.run(
        [sys.executable, "-c", TWO_CPUS + code], capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout


@pytest.mark.parametrize("op", ["StringLower", "StringSplitV2", "StaticRegexReplace", "LookupTableFindV2"])
def test_string_operations_have_kernels_for_the_cpu_only(tf: Any, op: str) -> None:
    from tensorflow.python.framework import kernels

    assert {kernel.device_type for kernel in kernels.get_registered_kernels_for_op(op).kernel} == {"CPU"}


@pytest.mark.parametrize("op", ["MapDataset", "ParallelMapDatasetV2", "BatchDatasetV2"])
def test_datasets_run_on_the_host(tf: Any, op: str) -> None:
    from tensorflow.python.framework import kernels

    assert {kernel.device_type for kernel in kernels.get_registered_kernels_for_op(op).kernel} == {"CPU"}


def test_prefetch_keeps_its_batches_in_the_hosts_memory(tf: Any) -> None:
    batches = tf.data.Dataset.from_tensor_slices(np.zeros(8)).batch(4).prefetch(tf.data.AUTOTUNE)
    assert next(iter(batches)).device.endswith("CPU:0")


def test_hiding_every_gpu_leaves_the_cpu_and_there_is_no_mps() -> None:
    said = on_two_cpus(
        "tf.config.set_visible_devices([], 'GPU')\n"
        "print(tf.config.list_physical_devices('MPS'), (tf.constant(1.0) + 1).device)"
    )
    assert said.startswith("[] ") and "device:CPU:0" in said


def test_a_shared_function_computes_where_it_is_called_and_keeps_its_variables_at_home() -> None:
    said = on_two_cpus(
        "with tf.device('CPU:0'):\n    weights = tf.Variable(tf.ones((4, 4)))\n"
        "step = tf.function(lambda x: tf.matmul(x, weights))\n"
        "with tf.device('CPU:1'):\n    result = step(tf.ones((4, 4)))\n"
        "print(weights.device, result.device)"
    )
    variable, result = said.split()
    assert variable.endswith("CPU:0")
    assert result.endswith("CPU:1")


def test_a_device_scope_around_fit_leaves_the_weights_where_the_model_was_built() -> None:
    said = on_two_cpus(
        "model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(2)])\n"
        "model.compile('sgd', 'mse')\n"
        "with tf.device('CPU:1'):\n    model.fit(tf.ones((8, 4)), tf.ones((8, 2)), verbose=0)\n"
        "print({weight.value.device for weight in model.weights})"
    )
    assert "CPU:0" in said and "CPU:1" not in said


def test_a_sleep_in_a_mapped_function_happens_while_it_is_traced(tf: Any) -> None:
    calls: list[int] = []

    def note(x: Any) -> Any:
        calls.append(1)  # stands for time.sleep
        return x

    dataset = tf.data.Dataset.range(100).map(note)
    assert len(list(dataset)) == 100
    assert len(calls) == 1

"""Record the traces of a GPU in `tests/profile/data/`, with JAX on an NVIDIA GPU; cut them where TensorFlow is:

    python benchmarks/traces/record_jax.py FOLDER [--single]    # in FOLDER; --single without CUDA graphs
    python benchmarks/traces/record_jax.py --cut TRACE DATA     # TRACE: an .xplane.pb file, DATA: a new .gz file

14 steps of a convolution net with momentum, batch 256, whose input is copied to the GPU in each step. The loss is
read in each step, or with --single in each fifth. Cut off are calls of Python functions.

`h100-graphs.xplane.pb.gz` and `h100-single.xplane.pb.gz` there: one NVIDIA H100 80GB HBM3, driver 580.159.04, JAX
0.11.2 with CUDA 13, Python 3.12, 26 November 2026.
"""

from __future__ import annotations

import gzip
import os
import sys
from pathlib import Path

STEPS, BATCH = 14, 256


def record(folder: str, single: bool) -> None:
    """Train, and trace some steps."""
    if single:
        os.environ["XLA_FLAGS"] = "--xla_gpu_enable_command_buffer="
    import jax
    import jax.numpy as jnp
    import numpy as np

    def convolved(x, w):
        x = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return jax.lax.reduce_window(jax.nn.relu(x), -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    def loss_of(weights, x, y):
        for name in ("conv_1", "conv_2"):
            with jax.named_scope(name):
                x = convolved(x, weights[name])
        with jax.named_scope("dense_1"):
            x = jax.nn.relu(x.reshape(x.shape[0], -1) @ weights["dense_1"])
        with jax.named_scope("dense_2"):
            x = x @ weights["dense_2"]
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1))

    def train(weights, momenta, x, y):
        loss, gradients = jax.value_and_grad(loss_of)(weights, x, y)
        momenta = jax.tree.map(lambda momentum, one: 0.9 * momentum + one, momenta, gradients)
        return jax.tree.map(lambda weight, one: weight - 0.01 * one, weights, momenta), momenta, loss

    shapes = {"conv_1": (3, 3, 3, 64), "conv_2": (3, 3, 64, 128), "dense_1": (8192, 512), "dense_2": (512, 10)}
    keys = jax.random.split(jax.random.key(0), len(shapes))
    weights = {name: jax.random.normal(key, shapes[name]) * 0.05 for name, key in zip(shapes, keys, strict=True)}
    momenta = jax.tree.map(jnp.zeros_like, weights)
    random = np.random.default_rng(0)
    images, labels = random.normal(size=(BATCH, 32, 32, 3)).astype("float32"), random.integers(0, 10, BATCH)
    step = jax.jit(train, donate_argnums=(0, 1))
    for _ in range(8):
        weights, momenta, loss = step(weights, momenta, jax.device_put(images), jax.device_put(labels))
    float(loss)
    with jax.profiler.trace(folder):
        for number in range(STEPS):
            with jax.profiler.StepTraceAnnotation("train", step_num=number):
                weights, momenta, loss = step(weights, momenta, jax.device_put(images), jax.device_put(labels))
                if not single or number % 5 == 4:
                    float(loss)
        float(loss)


def cut(trace: Path, data: Path) -> None:
    """Write a trace without its unused events."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace()
    space.ParseFromString(trace.read_bytes())
    for plane in space.planes:
        sources = {number for number, one in plane.stat_metadata.items() if one.name == "_src"}
        calls = {number for number, one in plane.event_metadata.items() if one.name.startswith("$")}
        for line in plane.lines:
            kept = [event for event in line.events if event.metadata_id not in calls]
            for event in kept:
                stats = [stat for stat in event.stats if stat.metadata_id not in sources]
                del event.stats[:]
                event.stats.extend(stats)
            del line.events[:]
            line.events.extend(kept)
        for number in calls:
            del plane.event_metadata[number]
    data.write_bytes(gzip.compress(space.SerializeToString(), mtime=0))


if __name__ == "__main__":
    if sys.argv[1] == "--cut":
        cut(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        record(sys.argv[1], "--single" in sys.argv)

"""The device of a lane: made visible before TensorFlow starts its devices, and named afterwards."""

from __future__ import annotations

import ctypes
import platform
import uuid
from typing import Any


class DeviceMissingError(Exception):
    """The lane's device is not there for TensorFlow; the text says why."""


def settle(kind: str, threads: object = "auto") -> str:
    """Leave TensorFlow only the lane's device, and return the GPU's model name; empty for the CPU.

    `threads` limits what one op may use on the CPU. The environment the child was started with has chosen the
    GPU already; this hides what it cannot hide.

    Errors: DeviceMissingError when a GPU is wanted and TensorFlow has none.
    Source: `tf.config.experimental.get_device_details`.
    """
    import tensorflow as tf

    if isinstance(threads, int):
        tf.config.threading.set_intra_op_parallelism_threads(threads)
    gpus = tf.config.list_physical_devices("GPU")
    if kind == "cpu":
        tf.config.set_visible_devices([], "GPU")
        return ""
    if not gpus:
        raise DeviceMissingError(why_no_gpu())
    details = tf.config.experimental.get_device_details(gpus[0])
    return str(details.get("device_name") or gpus[0].name)


def gpu_uuid() -> str | None:
    """Return the UUID of the first GPU that CUDA shows this process, or None where there is no CUDA.

    Source: cuDeviceGetUuid_v2 (in MIG mode the UUID of the MIG instance); it creates no context.
    """
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
        device, raw = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        failed = (
            cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0) or cuda.cuDeviceGetUuid_v2(raw, device)
        )
    except (OSError, AttributeError):
        return None
    if failed:
        return None
    return f"GPU-{uuid.UUID(bytes=bytes(raw))}"


def gpu_memory(kind: str) -> tuple[int | None, int | None]:
    """Return what TensorFlow's allocator has in use and had at peak, in bytes; None where it does not tell.

    Source: `tf.config.experimental.get_memory_info`: tensors only, neither the pool nor the CUDA context.
    """
    if kind != "gpu":
        return None, None
    import tensorflow as tf

    try:
        info: dict[str, Any] = tf.config.experimental.get_memory_info("GPU:0")
    except (ValueError, tf.errors.OpError):
        return None, None
    return int(info["current"]), int(info["peak"])


def why_no_gpu() -> str:
    """Say why TensorFlow has no GPU here."""
    import tensorflow as tf

    if platform.system() == "Darwin":
        return "TensorFlow sees no GPU: tensorflow-metal is not installed, or does not fit this TensorFlow"
    if not tf.test.is_built_with_gpu_support():
        return f"TensorFlow {tf.__version__} here is a build for the CPU only"
    return "TensorFlow sees no GPU: a CUDA library it needs did not load (its stderr names it)"

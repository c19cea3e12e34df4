"""TensorFlow in a lane's process: its import, and its devices."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import platform
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tfmon.model.knobs import KnobError, Settings
from tfmon.model.lane_events import LibrariesLoaded
from tfmon.model.spec import device_names, obstacle
from tfmon.trainer.scenario import ScenarioError


def has_bfloat16() -> bool:
    """Return whether this CPU computes in bfloat16 without emulation."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        flags = next((line.split() for line in lines if line.startswith("flags")), [])
        return "avx512_bf16" in flags or "amx_bf16" in flags
    return False


def load_everything() -> None:
    """Import TensorFlow and Keras without touching a device.

    Garbage collection is off, because it would take a fifth of the time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        import tensorflow  # noqa: F401, I001 - first, so that its absence is reported
        import keras  # noqa: F401
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


def libraries_loaded(device_name: str, uuids: tuple[str, ...]) -> LibrariesLoaded:
    """Return the loaded libraries of this process, without importing any."""
    names = ("tensorflow", "keras", "numpy")
    return LibrariesLoaded(
        at_ns=time.monotonic_ns(),
        **{name: str(getattr(sys.modules.get(name), "__version__", "")) for name in names},
        device_name=device_name,
        gpu_uuid=next(iter(uuids), None),
        gpu_uuids=uuids,
        bfloat16=has_bfloat16(),
    )


class Failure(Exception):
    """The reason why this lane cannot continue."""

    def __init__(self, kind: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.hint = hint


def choose_device(kind: str, threads: object = "auto", count: int = 1) -> str:
    """Restrict TensorFlow to the lane's devices, and return the GPUs' model name, or "" for the CPU.

    Several `cpu` devices share the cores. An int for `threads` limits an operation's CPU threads.

    Raises: Failure if TensorFlow has too few GPUs.
    """
    import tensorflow as tf

    if isinstance(threads, int):
        tf.config.threading.set_intra_op_parallelism_threads(threads)
    gpus = tf.config.list_physical_devices("GPU")
    if kind == "cpu":
        tf.config.set_visible_devices([], "GPU")
        if count > 1:
            split_cpu(count)
        return ""
    if not gpus:
        raise Failure("device_absent", missing_gpu_reason())
    if len(gpus) < count:
        raise Failure("device_absent", f"TensorFlow sees {len(gpus)} of the {count} GPUs of this lane")
    return gpu_names(gpus[:count])


def gpu_names(gpus: Sequence[Any]) -> str:
    """Return the GPUs' names, such as "2x NVIDIA H200"."""
    import tensorflow as tf

    details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
    return device_names(
        [str(detail.get("device_name") or gpu.name) for detail, gpu in zip(details, gpus, strict=True)]
    )


def split_cpu(count: int) -> None:
    """Make logical devices of the CPU. Raises RuntimeError if it is in use."""
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)


def gpu_uuids(count: int = 1) -> tuple[str, ...]:
    """Return the first GPUs' UUIDs, if known. Source: cuDeviceGetUuid_v2, without a context."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
        if cuda.cuInit(0):
            return ()
        result = [_uuid(cuda, index) for index in range(count)]
    except (OSError, AttributeError):
        return ()
    return tuple(name for name in result if name) if all(result) else ()


def _uuid(cuda: ctypes.CDLL, index: int) -> str:
    device, raw = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    if cuda.cuDeviceGet(ctypes.byref(device), index) or cuda.cuDeviceGetUuid_v2(raw, device):
        return ""
    return f"GPU-{uuid.UUID(bytes=bytes(raw))}"


def gpu_memory(kind: str, count: int = 1) -> tuple[int | None, int | None]:
    """Return TensorFlow's allocated bytes and their peak, summed over GPUs. `None` if unknown.

    Units: bytes of tensors, without the pool's rest and the CUDA context. The GPUs' peaks may not be simultaneous.
    """
    if kind != "gpu":
        return None, None
    import tensorflow as tf

    try:
        info = [tf.config.experimental.get_memory_info(f"GPU:{index}") for index in range(count)]
    except (ValueError, tf.errors.OpError):
        return None, None
    return sum(int(memory["current"]) for memory in info), sum(int(memory["peak"]) for memory in info)


def missing_gpu_reason() -> str:
    """Return why TensorFlow has no GPU here."""
    import tensorflow as tf

    if platform.system() == "Darwin":
        return "TensorFlow sees no GPU: tensorflow-metal is not installed, or does not fit this TensorFlow"
    if not tf.test.is_built_with_gpu_support():
        return f"TensorFlow {tf.__version__} here is a build for the CPU only"
    return "TensorFlow sees no GPU: a CUDA library it needs did not load (its stderr names it)"


RUNS_IN_PYTHON = "this step runs in Python, and so on one device: several need a step that is a tf.function"


class Replicas:
    """The devices of a lane. Each has a replica of the model, and trains a part of every batch.

    The host splits the batch. `tf.distribute` sums the gradients.

    Thread: any.
    """

    def __init__(self, kind: str = "cpu", count: int = 1) -> None:
        self.count = count
        self._strategy: Any = None
        if count > 1:
            import tensorflow as tf

            names = [f"{kind.upper()}:{index}" for index in range(count)]
            self._strategy = tf.distribute.MirroredStrategy(names)

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context for variables. Each thread must enter it."""
        return contextlib.nullcontext() if self._strategy is None else self._strategy.scope()

    def check(self, settings: Settings) -> None:
        """Raise KnobError if devices cannot train together."""
        reason = obstacle(settings, self.count)
        if reason:
            raise KnobError(reason)

    def together(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """Return a step of all devices. Raises ScenarioError for a step in Python."""
        if self._strategy is None:
            return step
        if getattr(step, "runs_in_python", False):
            raise ScenarioError(RUNS_IN_PYTHON)
        strategy = self._strategy

        def train(*batch: Any) -> Any:
            import tensorflow as tf

            split = [self._split(tensor) for tensor in tf.nest.flatten(batch)]
            parts = [
                tf.nest.pack_sequence_as(batch, [replica[index] for replica in split])
                for index in range(self.count)
            ]
            distributed = strategy.experimental_distribute_values_from_function(
                lambda context: parts[context.replica_id_in_sync_group]
            )
            losses = strategy.run(lambda *part: _mean(step(*part)), args=distributed)
            return None if losses is None else strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

        return train

    def _split(self, tensor: Any) -> Any:
        import tensorflow as tf

        with tf.device("CPU:0"):
            tensor = tf.convert_to_tensor(tensor)
            if tensor.shape.rank == 0:
                return [tensor] * self.count
            size = tf.shape(tensor)[0]
            return tf.split(tensor, [(size + index) // self.count for index in reversed(range(self.count))])


def _mean(loss: Any) -> Any:
    import tensorflow as tf

    if loss is None:
        return None
    loss = tf.convert_to_tensor(loss)
    return loss if loss.shape.rank == 0 else tf.reduce_mean(tf.cast(loss, tf.float32))

"""Finds the loaded libraries and their device."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from tfmon.model.lane_events import EAGER, FUNCTIONS_EAGERLY, LibrariesLoaded
from tfmon.system.lane_pipes import ANY
from tfmon.trainer import runtime


def find(kind: str) -> tuple[str, str, LibrariesLoaded]:
    """Return the device, why it is not `kind`, and the libraries, without importing any."""
    modules = sys.modules
    tensorflow = modules.get("tensorflow")
    name, missing = "", ""
    if kind == ANY:
        kind = "gpu" if _sees_gpu() else "cpu"
    if tensorflow is not None and _is_in_use():
        name, missing = _of_tensorflow(tensorflow, kind)
    elif "torch" in modules:
        name, missing = _of_torch(modules["torch"], kind)
    uuids: tuple[str, ...] = ()
    if kind == "gpu" and not missing:
        uuids = runtime.gpu_uuids((_visible(tensorflow) if _is_in_use() else 0) or 1)
    return kind, missing, runtime.libraries_loaded(name, uuids)


def traits() -> Iterator[str]:
    """Yield the traits of all steps."""
    if functions_run_eagerly():
        yield from (EAGER, FUNCTIONS_EAGERLY)


def functions_run_eagerly() -> bool:
    """Return whether each `tf.function` runs its operations from Python."""
    return _is_in_use() and bool(sys.modules["tensorflow"].config.functions_run_eagerly())


def gpu_memory(kind: str) -> tuple[int | None, int | None]:
    """Return the allocated bytes of the framework, and their peak."""
    if kind != "gpu":
        return None, None
    if _is_in_use():
        return runtime.gpu_memory(kind, _visible(sys.modules["tensorflow"]))
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None, None
    return int(torch.cuda.memory_allocated()), int(torch.cuda.max_memory_allocated())


def _sees_gpu() -> bool:
    if _is_in_use():
        return _visible(sys.modules["tensorflow"]) > 0
    torch: Any = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_available())


def _is_in_use() -> bool:
    """Listing devices would start CUDA."""
    context = sys.modules.get("tensorflow.python.eager.context")
    result = getattr(getattr(context, "_context", None), "_physical_devices", None)
    return result is not None


def _of_tensorflow(tensorflow: Any, kind: str) -> tuple[str, str]:
    gpus = tensorflow.config.get_visible_devices("GPU")
    if kind == "cpu":
        if gpus:
            return "", "TensorFlow still sees a GPU here: tf.config.set_visible_devices([], 'GPU') hides it"
        return "", ""
    if not gpus:
        return "", runtime.missing_gpu_reason()
    return runtime.gpu_names(gpus), ""


def _visible(tensorflow: Any) -> int:
    return 0 if tensorflow is None else len(tensorflow.config.get_visible_devices("GPU"))


def _of_torch(torch: Any, kind: str) -> tuple[str, str]:
    if kind == "cpu":
        return "", ""
    if not torch.cuda.is_available():
        return "", f"PyTorch {torch.__version__} sees no GPU"
    return str(torch.cuda.get_device_name(0)), ""

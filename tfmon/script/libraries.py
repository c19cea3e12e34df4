"""What a script trains with: its libraries, and the device that they really use."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Equipment:
    """What was found; versions are empty for what the script has not loaded."""

    tensorflow: str = ""
    keras: str = ""
    numpy: str = ""
    device_name: str = ""
    gpu_uuid: str | None = None
    absent: str = ""
    """Why the lane's device is not what the script trains on."""


def find(kind: str) -> Equipment:
    """Look at what is loaded; nothing is imported for it."""
    modules = sys.modules
    tensorflow = modules.get("tensorflow")
    name, absent = "", ""
    if tensorflow is not None:
        name, absent = _of_tensorflow(tensorflow, kind)
    elif "torch" in modules:
        name, absent = _of_torch(modules["torch"], kind)
    uuid = None
    if kind == "gpu" and not absent:
        from tfmon.trainer.runtime import gpu_uuid

        uuid = gpu_uuid()
    return Equipment(
        tensorflow=str(getattr(tensorflow, "__version__", "")),
        keras=str(getattr(modules.get("keras"), "__version__", "")),
        numpy=str(getattr(modules.get("numpy"), "__version__", "")),
        device_name=name,
        gpu_uuid=uuid,
        absent=absent,
    )


def gpu_memory(kind: str) -> tuple[int | None, int | None]:
    """Return what the framework's allocator has in use and had at peak, in bytes; None where it does not tell.

    Source: `tf.config.experimental.get_memory_info`, `torch.cuda.memory_allocated`.
    """
    if kind != "gpu":
        return None, None
    if "tensorflow" in sys.modules:
        from tfmon.trainer import runtime

        return runtime.gpu_memory(kind)
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None, None
    return int(torch.cuda.memory_allocated()), int(torch.cuda.max_memory_allocated())


def _of_tensorflow(tensorflow: Any, kind: str) -> tuple[str, str]:  # noqa: ANN401
    gpus = tensorflow.config.get_visible_devices("GPU")
    if kind == "cpu":
        if gpus:
            return "", "TensorFlow still sees a GPU here: tf.config.set_visible_devices([], 'GPU') hides it"
        return "", ""
    if not gpus:
        from tfmon.trainer.runtime import why_no_gpu

        return "", why_no_gpu()
    details = tensorflow.config.experimental.get_device_details(gpus[0])
    return str(details.get("device_name") or gpus[0].name), ""


def _of_torch(torch: Any, kind: str) -> tuple[str, str]:  # noqa: ANN401
    if kind == "cpu":
        return "", ""
    if not torch.cuda.is_available():
        return "", f"PyTorch {torch.__version__} sees no GPU"
    return str(torch.cuda.get_device_name(0)), ""

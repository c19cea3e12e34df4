"""GPUs of TensorFlow's plug-ins: lanes train on them, and all that tfmon says of them is why it reads nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from tfmon.model.events import Event
from tfmon.probes.base import Gpu, absent_gpu

KEY = "plugin-gpu-0"


def plugin_gpu(library: str) -> Gpu:
    """Return the GPU that a plug-in of TensorFlow may list; whether it does only TensorFlow knows."""
    return Gpu(index=0, uuid=KEY, name=f"GPU of {library}", physical_gpu=0)


class PluginProbe:
    """Gives one sample a second in which every reading is missing."""

    name = "plugin"

    def __init__(self, gpu: Gpu, *, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._gpu = gpu
        self._clock_ns = clock_ns

    def sample(self) -> Iterable[Event]:
        """Return the reason for every reading."""
        library = self._gpu.name.removeprefix("GPU of ")
        return self.missing(f"tfmon cannot read the GPU of TensorFlow's plug-in {library}")

    def missing(self, reason: str) -> Iterable[Event]:
        """Return every reading as missing for that reason."""
        return [absent_gpu(self._gpu, self._clock_ns(), reason)]

    def close(self) -> None:
        """Release nothing: no driver is open."""

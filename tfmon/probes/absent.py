"""Readings of GPUs that nothing reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from tfmon.model.events import Event, GpuSample
from tfmon.model.readings import Missing
from tfmon.probes.base import Gpu


def absent_gpu(gpu: Gpu, at_ns: int, reason: str) -> GpuSample:
    """Return a sample of a GPU in which every reading is missing for one reason."""
    why = Missing(reason)
    return GpuSample(
        at_ns=at_ns,
        key=gpu.uuid,
        index=gpu.index,
        name=gpu.name,
        busy_pct=why,
        busy_source="",
        used_bytes=why,
        total_bytes=why,
        power_w=why,
        power_limit_w=why,
        temperature_c=why,
    )


class AbsentProbe:
    """Stands where a GPU probe would stand that this machine has no way to run."""

    name = "absent"

    def __init__(
        self, gpus: Sequence[Gpu], reason: str, *, clock_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._gpus = tuple(gpus)
        self._reason = reason
        self._clock_ns = clock_ns

    def start(self) -> None:
        """Nothing to get ready."""

    def sample(self) -> Iterable[Event]:
        """Give every reading of every GPU as missing."""
        return self.missing(self._reason)

    def missing(self, reason: str) -> Iterable[Event]:
        """Give every reading of every GPU as missing for that reason."""
        at_ns = self._clock_ns()
        return [absent_gpu(gpu, at_ns, reason) for gpu in self._gpus]

    def close(self) -> None:
        """Nothing to let go of."""

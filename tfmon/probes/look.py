"""One look at all GPUs of a machine: their load of the last seconds, their memory, and who is on them."""

from __future__ import annotations

from collections.abc import Sequence

from tfmon.model.readings import GpuSample
from tfmon.probes.base import Gpu, absent_gpu, within
from tfmon.probes.choice import choose_gpu_probe

BEFORE_S = 5.0
"""How many of the last seconds the load is the mean of, as far as the driver keeps it."""
TIMEOUT_S = 10.0
"""Without persistence mode, the first call of the driver takes seconds."""


def look(gpus: Sequence[Gpu], timeout_s: float = TIMEOUT_S) -> list[GpuSample]:
    """Return one sample of each GPU, with its load of the last seconds and who is on it.

    Thread: any; a driver that hangs is left alone in a thread of its own, and the samples then have no reading.
    """
    probe = choose_gpu_probe(gpus, before_s=BEFORE_S)
    if probe is None:
        return []
    wanted = {gpu.uuid for gpu in gpus}

    def work() -> list[GpuSample]:
        try:
            return [event for event in probe.sample() if isinstance(event, GpuSample) and event.key in wanted]
        finally:
            probe.close()

    found = within(timeout_s, work)
    return [absent_gpu(gpu, 0, "the driver does not answer") for gpu in gpus] if found is None else found

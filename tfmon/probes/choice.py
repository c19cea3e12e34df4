"""Which probes a machine gets, and one look at all its GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tfmon.model.readings import GpuSample
from tfmon.probes.amd import AmdProbe
from tfmon.probes.apple import AppleProbe
from tfmon.probes.base import Gpu, Probe, absent_gpu, kind_of, within
from tfmon.probes.host import HostProbe
from tfmon.probes.nvidia.probe import NvidiaProbe

BEFORE_S = 5.0
"""How many of the last seconds the load is the mean of, as far as the driver keeps it."""
TIMEOUT_S = 10.0
"""Without persistence mode, the first call of the driver takes seconds."""


def choose_probes(lanes: Callable[[], Mapping[str, int]], gpus: Sequence[Gpu]) -> list[Probe]:
    """Return a probe of the machine and of its lanes, and one of its GPUs if there are any.

    Args:
        lanes: As for `HostProbe`.
        gpus: Those that are sampled, as `find_gpus` found them.
    """
    gpu_probe = choose_gpu_probe(gpus)
    return [HostProbe(lanes), *([] if gpu_probe is None else [gpu_probe])]


def choose_gpu_probe(gpus: Sequence[Gpu], before_s: float = 0.0) -> Probe | None:
    """Return a probe of GPUs of one maker, as `find_gpus` found them; None for none.

    Args:
        gpus: Those that are sampled.
        before_s: How much of the time before the first sample that one covers, where the driver keeps it.
    """
    if not gpus:
        return None
    if gpus[0].uuid.startswith(("GPU-", "MIG-")):
        return NvidiaProbe(gpus, before_s=before_s)
    if kind_of(gpus[0]) == "amd":
        return AmdProbe(gpus)
    return AppleProbe(gpus[0])


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

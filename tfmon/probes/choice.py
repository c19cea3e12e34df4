"""Which probes a machine gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tfmon.probes.amd import AmdProbe
from tfmon.probes.apple import AppleProbe
from tfmon.probes.base import Gpu, Probe, kind_of
from tfmon.probes.host import HostProbe
from tfmon.probes.nvidia.probe import NvidiaProbe
from tfmon.probes.plugin import PluginProbe


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
    if kind_of(gpus[0]) == "plugin":
        return PluginProbe(gpus[0])
    return AppleProbe(gpus[0])

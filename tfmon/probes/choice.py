"""Which probes a machine gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tfmon.probes.apple import AppleProbe
from tfmon.probes.base import Gpu, Probe
from tfmon.probes.host import HostProbe
from tfmon.probes.nvidia.probe import NvidiaProbe


def choose_probes(lanes: Callable[[], Mapping[str, int]], gpus: Sequence[Gpu]) -> list[Probe]:
    """Return a probe of the machine and of its lanes, and one of its GPUs if there are any.

    Args:
        lanes: As for `HostProbe`.
        gpus: Those that are sampled, as `find_gpus` found them.
    """
    probes: list[Probe] = [HostProbe(lanes)]
    if gpus and gpus[0].uuid.startswith(("GPU-", "MIG-")):
        probes.append(NvidiaProbe(gpus))
    elif gpus:
        probes.append(AppleProbe(gpus[0]))
    return probes

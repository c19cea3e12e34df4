"""What in a sample of the machine means that the lanes were disturbed since the sample before. Pure."""

from __future__ import annotations

from tfmon.model.readings import Missing, Reading, known
from tfmon.model.samples import GpuSample, HostSample

SWAPPING, THROTTLED, STOLEN, GPU_THROTTLED = "swapping", "cgroup throttled", "stolen time", "GPU throttled"

SWAP_BYTES_PER_S = 1e6
THROTTLED_PCT = 5.0
STOLEN_PCT = 10.0


def host_disturbances(sample: HostSample) -> tuple[str, ...]:
    """Return what disturbed every lane; empty for a calm machine, and for what it does not tell."""
    found = []
    if _above(sample.swap_in_bytes_per_s, SWAP_BYTES_PER_S) or _above(
        sample.swap_out_bytes_per_s, SWAP_BYTES_PER_S
    ):
        found.append(SWAPPING)
    if _above(sample.throttled_pct, THROTTLED_PCT):
        found.append(THROTTLED)
    if _above(sample.steal_pct, STOLEN_PCT):
        found.append(STOLEN)
    return tuple(found)


def gpu_disturbances(sample: GpuSample) -> tuple[str, ...]:
    """Return what disturbed the lanes on this GPU: clocks held down by heat or hardware, not by a power cap.

    A power cap is how a GPU is run; at full load most boards reach it.
    """
    reasons = () if isinstance(sample.clock_reasons, Missing) else sample.clock_reasons
    return (GPU_THROTTLED,) if any(reason.level == "alarm" for reason in reasons) else ()


def _above(reading: Reading, limit: float) -> bool:
    value = known(reading)
    return value is not None and value > limit

"""What in a sample of a GPU or of the machine says that lanes were disturbed since the sample before. Pure."""

from __future__ import annotations

from tfmon.model.readings import GpuSample, HostSample, Missing, known

SWAPPING, THROTTLED, GPU_THROTTLED = "swapping", "cgroup throttled", "GPU throttled"

SWAP_BYTES_PER_S = 1e6
THROTTLED_PCT = 5.0


def host_disturbances(sample: HostSample) -> tuple[str, ...]:
    """Return the disturbances of every lane; a missing reading is not a disturbance.

    Stolen time is none: it hits all lanes alike, and `analysis.contention` reports it beside the figures.
    """
    limits = (
        (SWAPPING, sample.swap_in_bytes_per_s, SWAP_BYTES_PER_S),
        (SWAPPING, sample.swap_out_bytes_per_s, SWAP_BYTES_PER_S),
        (THROTTLED, sample.throttled_pct, THROTTLED_PCT),
    )
    found = [name for name, reading, limit in limits if (value := known(reading)) is not None and value > limit]
    return tuple(dict.fromkeys(found))


def gpu_disturbances(sample: GpuSample) -> tuple[str, ...]:
    """Return the disturbances of the lanes on this GPU: clocks lowered by heat or hardware.

    A power cap is not a disturbance: at full load most GPUs reach it.
    """
    reasons = () if isinstance(sample.clock_reasons, Missing) else sample.clock_reasons
    return (GPU_THROTTLED,) if any(reason.level == "alarm" for reason in reasons) else ()

"""Samples that tell of a disturbance: its reason, and none for what is not known."""

from __future__ import annotations

import pytest

from tfmon.model.readings import ClockReason, GpuSample, HostSample, Missing
from tfmon.model.session import (
    GPU_THROTTLED,
    STOLEN,
    SWAPPING,
    THROTTLED,
    gpu_disturbances,
    host_disturbances,
)


def host(**readings) -> HostSample:
    return HostSample(at_ns=0, cpu_pct=100.0, memory_used_bytes=1.0, memory_total_bytes=2.0, **readings)


def gpu(*reasons: ClockReason) -> GpuSample:
    nothing = Missing("not asked")
    return GpuSample(
        at_ns=0, key="GPU-1", index=0, name="GPU", busy_pct=5.0, busy_source="samples", used_bytes=nothing,
        total_bytes=nothing, power_w=nothing, power_limit_w=nothing, temperature_c=nothing, clock_reasons=reasons,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("readings", "reason"),
    [
        ({"swap_out_bytes_per_s": 5e6}, SWAPPING),
        ({"swap_in_bytes_per_s": 5e6}, SWAPPING),
        ({"throttled_pct": 10.0}, THROTTLED),
        ({"steal_pct": 30.0}, STOLEN),
    ],
)
def test_what_slows_every_lane_is_named(readings, reason):
    assert host_disturbances(host(**readings)) == (reason,)


def test_what_is_not_known_disturbs_nothing():
    assert host_disturbances(host()) == ()


def test_a_gpu_throttled_by_heat_is_disturbed_and_one_at_its_power_cap_is_not():
    assert gpu_disturbances(gpu(ClockReason("too hot", "alarm"))) == (GPU_THROTTLED,)
    assert gpu_disturbances(gpu(ClockReason("power cap", "warning"))) == ()

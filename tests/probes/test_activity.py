"""The activity of a GPU's parts, through the fake driver with readings of a real H100 under nine loads."""

import ctypes
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.nvml import TWO_GPUS

from tfmon.analysis.bottleneck import activity_text
from tfmon.model.gpu_samples import GpuActivity, GpuSample
from tfmon.model.lane_use import GpuUse
from tfmon.model.readings import Missing
from tfmon.probes.base import FIRST_SAMPLE
from tfmon.probes.nvidia.activity import NO_GPM

pytestmark = pytest.mark.process

H100: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "h100.json").read_text())["loads"]


def script_of(load: str, *, parts: bool = True) -> str:
    """Return the driver's answers for GPU 0 at the end of a load."""
    told = H100[load]
    lines = [f"part 0 {number} {value}" for number, value in told["gpm"].items() if parts]
    lines += [
        f"field 0 {number} {told['pcie_counters']['type']} {count}"
        for number, count in zip((197, 198), told["pcie_counters"]["after"], strict=True)
    ]
    lines += [f"util 0 {told['busy_pct']:.0f} 0", "pcie 0 123000 456000"]
    return TWO_GPUS.replace("util 0 87 41\n", "") + "\n".join(lines) + "\n"


def sampled(read: Callable[..., list[GpuSample]], script: str) -> GpuSample:
    """Return the second sample of GPU 0: the first has no rates."""
    read(script)
    return read(after_s=1)[0]


@pytest.mark.parametrize(
    ("load", "text"),
    [
        ("idle", ""),
        ("tensor", "the tensor cores work 94 % of the time of kernels: near the GPU's peak"),
        ("tf32", "the tensor cores work 89 %"),
        ("fp32", "the units for 32 bits work 77 % of the time of kernels: near their peak; tensor cores are idle"),
        ("half", "the units for 32 bits work 77 %"),
        ("copy", "kernels use 90 % of the GPU memory's bandwidth, which limits them"),
        ("tiny", "kernels run, but small ones: they fill less than 1 % of the multiprocessors"),
        ("h2d", "the GPU copies more than it computes: busy 99 %, kernels run 0 % of the time"),
        ("d2h", "the GPU copies more than it computes: busy 99 %"),
    ],
)
def test_each_load_of_an_h100_is_told_apart(read, load, text):
    sample = sampled(read, script_of(load))
    assert isinstance(sample.activity, GpuActivity)
    use = GpuUse()
    for _ in range(3):
        use.racing_busy_pct = use.racing_busy_pct.with_sample(sample.load.busy_pct)
        use.add_activity(sample.activity)
    assert activity_text(use).startswith(text) and bool(activity_text(use)) == bool(text)
    if load == "tiny":
        assert activity_text(use, all_the_time=True).startswith("kernels run 37 % of the time, and are small:")


def test_traffic_that_a_counter_of_32_bits_would_hide(read, clock):
    """The counters of an H100 start again at 0 after 4.3 GB, and show 0.9 GB/s instead of 59."""
    sample = sampled(read, script_of("h2d"))
    assert sample.traffic.pcie_received_bytes_per_s == pytest.approx(56326.6 * 2**20)
    assert sample.traffic.source == "gpm"
    clock.ahead(1)
    sample = sampled(read, script_of("h2d", parts=False))
    assert (sample.traffic.pcie_received_bytes_per_s, sample.traffic.source) == (456e6, "20 ms peek")


def test_a_gpu_without_gpm_a_refusal_and_a_reset(read, probe, driver):
    assert read(script_of("tensor"))[0].activity == FIRST_SAMPLE
    busy, idle = read(script_of("tensor") + "ret GpmSampleGet 4\n", 1)
    assert (busy.activity, busy.load.busy_pct) == (Missing("no permission to use the NVIDIA driver"), 99)
    assert idle.activity == NO_GPM
    assert isinstance(read(script_of("tensor"), 1)[0].activity, GpuActivity)
    assert isinstance(read(script_of("tensor") + "ret GpmMetricsGet 2\n", 1)[0].activity, GpuActivity), (
        "a whole GPU is read every 2 s"
    )
    assert read(after_s=1)[0].activity == Missing("the driver has no data"), "after a reset two samples do not fit"
    probe.close()
    assert ctypes.CDLL(str(driver.library)).fakeGpmSamples() == 0, "every sample is released"

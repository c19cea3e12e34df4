"""Fixtures of the probes' tests."""

from collections.abc import Callable, Iterator

import pytest
from support.events import Clock
from support.nvml import BUSY, IDLE, TWO_GPUS, FakeDriver, take

from tfmon.model.gpu_samples import GpuSample
from tfmon.probes.nvidia.probe import NvidiaProbe

V2 = "30 20 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
"""A line of /proc/self/mountinfo: control groups of version 2."""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def probe(driver: FakeDriver, clock: Clock) -> Iterator[NvidiaProbe]:
    probe = NvidiaProbe([BUSY, IDLE], clock_ns=clock)
    yield probe
    probe.close()


@pytest.fixture
def read(driver: FakeDriver, clock: Clock, probe: NvidiaProbe) -> Callable[..., list[GpuSample]]:
    """Return a function that takes a sample after some time; the script may add to the two GPUs."""

    def sample(script: str | None = None, after_s: float = 0.0) -> list[GpuSample]:
        clock.ahead(after_s)
        if script is not None:
            driver.play(script if script.startswith("count") else TWO_GPUS + script)
        return take(probe)

    return sample

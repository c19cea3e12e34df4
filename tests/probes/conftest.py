"""Fixtures of the probes' tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.nvml import BUSY, IDLE, Clock, FakeDriver, build_fake_nvml, driver, load_driver

from tfmon.probes.nvidia.probe import NvidiaProbe

__all__ = ["build_fake_nvml", "driver", "load_driver"]


@pytest.fixture
def clock() -> Clock:
    """Return a clock that moves only in `pass_s`."""
    return Clock()


@pytest.fixture
def probe(driver: FakeDriver, clock: Clock) -> Iterator[NvidiaProbe]:
    """Return a probe of the two GPUs of the fake driver."""
    probe = NvidiaProbe([BUSY, IDLE], clock_ns=clock)
    yield probe
    probe.close()

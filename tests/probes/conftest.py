"""Fixtures of the probes' tests."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.nvml import BUSY, IDLE, Clock, FakeDriver, build_fake_nvml, driver, load_driver

from tfmon.probes.nvidia.probe import NvidiaProbe

__all__ = ["build_fake_nvml", "driver", "load_driver"]

V2 = "30 20 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
"""A line of /proc/self/mountinfo: control groups of version 2."""


@pytest.fixture
def clock() -> Clock:
    """Return a clock that moves only in `pass_s`."""
    return Clock()


@pytest.fixture
def put(tmp_path) -> Callable[[str, str], Path]:
    """Return a function that writes a file below `tmp_path`, the root of a machine."""

    def write(path: str, text: str) -> Path:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    return write


@pytest.fixture
def probe(driver: FakeDriver, clock: Clock) -> Iterator[NvidiaProbe]:
    """Return a probe of the two GPUs of the fake driver."""
    probe = NvidiaProbe([BUSY, IDLE], clock_ns=clock)
    yield probe
    probe.close()

"""Possible disturbances of a race, from fixture trees: control groups (v1, v2), swap, pressure and power."""

from types import SimpleNamespace

import psutil
import pytest

from tfmon.model.readings import Missing
from tfmon.probes.base import CounterRate
from tfmon.probes.machine import Disturbances

SECOND = 1_000_000_000
FIRST = Missing("first sample")
V1 = "33 25 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"


def read(around: Disturbances, at_ns: int, lanes: list[int]) -> SimpleNamespace:
    return SimpleNamespace(**around.read(at_ns, lanes))


@pytest.fixture
def around(tmp_path):
    return Disturbances(tmp_path, platform="linux")


class TestRate:
    def test_growth_a_second(self):
        rate = CounterRate()
        assert rate.per_s(10, 0) == FIRST
        assert rate.per_s(16, 2 * SECOND) == 3
        assert rate.per_s(16, 3 * SECOND) == 0

    def test_too_soon_keeps_the_sample_before(self):
        rate = CounterRate()
        rate.per_s(10, 0)
        assert rate.per_s(12, SECOND // 100) == Missing("sampled again too soon")
        assert rate.per_s(20, SECOND) == 10

    def test_counter_that_goes_back(self):
        rate = CounterRate()
        rate.per_s(90, 0)
        assert rate.per_s(5, SECOND) == Missing("the system's counter was reset")
        assert rate.per_s(8, 2 * SECOND) == 3


class TestThrottling:
    def test_v1(self, put, around):
        put("proc/self/cgroup", "1:cpu:/docker/x\n0::/\n")
        put("proc/self/mountinfo", V1)
        stat = "nr_periods {}\nnr_throttled {}\nthrottled_time {}\n"
        put("sys/fs/cgroup/cpu/docker/x/cpu.stat", stat.format(10, 0, 0))
        read(around, 0, [])
        put("sys/fs/cgroup/cpu/docker/x/cpu.stat", stat.format(20, 10, 250_000_000))
        second = read(around, SECOND, [])
        assert second.throttled_pct == pytest.approx(100)


class TestSwapAndPressure:
    def test_psutil_elsewhere(self, tmp_path, monkeypatch):
        swapped = [SimpleNamespace(sin=0, sout=500)]
        monkeypatch.setattr(psutil, "swap_memory", lambda: swapped[0])
        around = Disturbances(tmp_path, platform="darwin")
        read(around, 0, [])
        swapped[0] = SimpleNamespace(sin=0, sout=900)
        assert read(around, SECOND, []).swap_out_bytes_per_s == 400

        def refuse():
            raise RuntimeError

        monkeypatch.setattr(psutil, "swap_memory", refuse)
        assert read(around, SECOND, []).swap_out_bytes_per_s == Missing("this system does not report swapping")

    def test_pressure_is_the_share_of_the_last_10_s(self, put, around):
        put("proc/pressure/cpu", "some avg10=11.31 avg60=8.12 avg300=5.07 total=27\nfull avg10=0.00 total=0\n")
        put("proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
        sample = read(around, 0, [])
        assert (sample.cpu_pressure_pct, sample.memory_pressure_pct) == (11.31, 0)


def test_usable_cores_are_read_every_30_s(around, monkeypatch):
    cores = [4.0]
    monkeypatch.setattr("tfmon.probes.machine.read_usable_cores", lambda *_: cores[0])
    assert read(around, 0, []).usable_cores == 4
    cores[0] = 2.0
    assert read(around, 29 * SECOND, []).usable_cores == 4
    assert read(around, 30 * SECOND, []).usable_cores == 2

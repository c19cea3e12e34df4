"""Possible disturbances of a race, from fixture trees: control groups (v1, v2), swap, pressure and power."""

from types import SimpleNamespace

import psutil
import pytest

from tfmon.model.readings import Missing
from tfmon.probes.base import CounterRate
from tfmon.probes.machine import Disturbances

SECOND = 1_000_000_000
V1 = "33 25 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"


def read(around: Disturbances, at_ns: int, lanes: list[int]) -> SimpleNamespace:
    return SimpleNamespace(**around.read(at_ns, lanes))


@pytest.fixture
def around(tmp_path):
    return Disturbances(tmp_path, platform="linux")


def test_growth_a_second_of_a_counter_that_may_be_read_too_soon_or_go_back():
    rate = CounterRate()
    for value, at_s, expected in (
        (10, 0, Missing("first sample")),
        (16, 2, 3),
        (16, 3, 0),
        (17, 3.01, Missing("sampled again too soon")),
        (26, 4, 10),
        (5, 5, Missing("the system's counter was reset")),
        (8, 6, 3),
    ):
        assert rate.per_s(value, int(at_s * SECOND)) == expected


def test_throttling_in_a_group_of_version_1(put, around):
    put("proc/self/cgroup", "1:cpu:/docker/x\n0::/\n")
    put("proc/self/mountinfo", V1)
    stat = "nr_periods {}\nnr_throttled {}\nthrottled_time {}\n"
    put("sys/fs/cgroup/cpu/docker/x/cpu.stat", stat.format(10, 0, 0))
    read(around, 0, [])
    put("sys/fs/cgroup/cpu/docker/x/cpu.stat", stat.format(20, 10, 250_000_000))
    assert read(around, SECOND, []).throttled_pct == pytest.approx(100)


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

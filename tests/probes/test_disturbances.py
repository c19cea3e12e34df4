"""What may disturb a race: control groups of both versions, swap, pressure and power, from fixture trees."""

from __future__ import annotations

import os
from types import SimpleNamespace

import psutil
import pytest

from tfmon.model.limits import NO_GROUP
from tfmon.model.readings import Missing
from tfmon.probes.base import CounterRate
from tfmon.probes.machine import Disturbances

from .conftest import V2

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
    def test_v2_in_the_lanes_own_group(self, put, around):
        put("proc/77/cgroup", "0::/lanes\n")
        put("proc/77/mountinfo", V2)
        stat = "usage_usec 5\nnr_periods {}\nnr_throttled {}\nthrottled_usec {}\n"
        put("sys/fs/cgroup/lanes/cpu.stat", stat.format(100, 10, 1_000_000))
        put("sys/fs/cgroup/cpu.stat", "usage_usec 9\nnr_periods many\n")  # without counts
        first = read(around, 0, [77])
        assert first.throttled_pct == FIRST
        put("sys/fs/cgroup/lanes/cpu.stat", stat.format(120, 15, 1_300_000))
        second = read(around, 2 * SECOND, [77])
        assert second.throttled_pct == pytest.approx(25)
        third = read(around, 3 * SECOND, [77])  # no period passed: without a quota nothing is throttled
        assert third.throttled_pct == 0

    def test_v1(self, put, around):
        put("proc/self/cgroup", "1:cpu:/docker/x\n0::/\n")
        put("proc/self/mountinfo", V1)
        stat = "nr_periods {}\nnr_throttled {}\nthrottled_time {}\n"
        put("sys/fs/cgroup/cpu/docker/x/cpu.stat", stat.format(10, 0, 0))
        read(around, 0, [])
        put("sys/fs/cgroup/cpu/docker/x/cpu.stat", stat.format(20, 10, 250_000_000))
        second = read(around, SECOND, [])
        assert second.throttled_pct == pytest.approx(100)

    def test_the_group_hit_hardest_counts_also_one_above(self, put, around):
        put("proc/77/cgroup", "0::/a/b\n")
        put("proc/77/mountinfo", V2)
        stat = "nr_periods {}\nnr_throttled {}\nthrottled_usec 0\n"
        for folder, now in (("a", (0, 0)), ("a/b", (0, 0))):
            put(f"sys/fs/cgroup/{folder}/cpu.stat", stat.format(*now))
        read(around, 0, [77])
        put("sys/fs/cgroup/a/cpu.stat", stat.format(10, 6))
        put("sys/fs/cgroup/a/b/cpu.stat", stat.format(10, 1))
        assert read(around, SECOND, [77]).throttled_pct == pytest.approx(60)

    def test_lanes_that_change_are_looked_up_anew(self, put, around):
        stat = "nr_periods {}\nnr_throttled {}\nthrottled_usec 0\n"
        for pid in (7, 8):
            put(f"proc/{pid}/cgroup", f"0::/lane{pid}\n")
            put(f"proc/{pid}/mountinfo", V2)
            put(f"sys/fs/cgroup/lane{pid}/cpu.stat", stat.format(0, 0))
        read(around, 0, [7])
        put("sys/fs/cgroup/lane7/cpu.stat", stat.format(10, 5))
        assert read(around, SECOND, [7]).throttled_pct == pytest.approx(50)
        assert read(around, 2 * SECOND, [8]).throttled_pct == FIRST


class TestSwapAndPressure:
    def test_pages_become_bytes_a_second(self, put, around):
        text = "nr_free_pages 1\nxpswpin 9\npswpin {}\npswpout {}\npgfault 3\n"
        put("proc/vmstat", text.format(100, 200))
        first = read(around, 0, [])
        assert first.swap_in_bytes_per_s == first.swap_out_bytes_per_s == FIRST
        put("proc/vmstat", text.format(100, 206))
        second = read(around, 2 * SECOND, [])
        page = os.sysconf("SC_PAGE_SIZE")
        assert (second.swap_in_bytes_per_s, second.swap_out_bytes_per_s) == (0, pytest.approx(3 * page))

    def test_unknown(self, put, around):
        put("proc/vmstat", "nr_free_pages 1\n")
        put("proc/pressure/cpu", "")
        sample = read(around, 0, [77])
        assert sample.throttled_pct == NO_GROUP
        assert sample.swap_in_bytes_per_s == Missing("this system does not report swapping")
        assert sample.cpu_pressure_pct == Missing("this system does not account for pressure")
        assert sample.memory_pressure_pct == sample.cpu_pressure_pct

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


class TestUsableCores:
    def test_read_every_30_s(self, around, monkeypatch):
        cores = [4.0]
        monkeypatch.setattr("tfmon.probes.machine.read_usable_cores", lambda *_: cores[0])
        assert read(around, 0, []).usable_cores == 4
        cores[0] = 2.0
        assert read(around, 29 * SECOND, []).usable_cores == 4
        assert read(around, 30 * SECOND, []).usable_cores == 2

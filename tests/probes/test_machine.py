"""The machine, its use and what may disturb a race: from fixture roots and psutil, or why readings are missing."""

import os
import sys
from types import SimpleNamespace

import pytest

from tfmon.model.readings import Missing
from tfmon.probes.base import CounterRate
from tfmon.probes.host_probe import HostProbe
from tfmon.probes.machine import (
    NO_PSUTIL,
    Disturbances,
    Load,
    NoReadingError,
    read_cpu_name,
    read_load,
    read_machine,
    read_swap,
)
from tfmon.system.limits import limited_memory, quota_cores

from .conftest import V2

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
V1 = "33 25 0:30 {root} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
OTHER = "34 25 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"


class TestQuota:
    @LINUX
    def test_tightest_limit_of_all_groups_above_v2_and_the_boot(self, put, tmp_path):
        assert read_machine(tmp_path).boot == "", "unknown, and equal to no other machine's"
        put("proc/sys/kernel/random/boot_id", "6d1d-42\n")
        put("proc/self/cgroup", "0::/user.slice/app.scope\n")
        put("proc/self/mountinfo", OTHER + V2)
        put("sys/fs/cgroup/cpu.stat", "")
        put("sys/fs/cgroup/user.slice/cpu.max", "250000 100000\n")
        put("sys/fs/cgroup/user.slice/app.scope/cpu.max", "400000 100000\n")
        machine = read_machine(tmp_path)
        assert (machine.boot, machine.quota_cores) == ("6d1d-42", 2.5)
        put("sys/fs/cgroup/user.slice/app.scope/cpu.max", "50000 100000\n")
        assert quota_cores(tmp_path) == 0.5
        put("sys/fs/cgroup/user.slice/app.scope/cpu.max", "max 100000\n")
        put("sys/fs/cgroup/user.slice/cpu.max", "max 100000\n")
        assert quota_cores(tmp_path) is None

    def test_group_outside_the_namespace_reads_the_mount_only(self, put, tmp_path):
        put("proc/self/cgroup", "0::/../../other\n")
        put("proc/self/mountinfo", V2)
        put("sys/fs/cgroup/cpu.max", "300000 100000\n")
        put("other/cpu.max", "1000 100000\n")
        assert quota_cores(tmp_path) == 3
        put("proc/self/mountinfo", V2.replace("/sys/fs/cgroup", "/my\\040groups"))  # a space in the name
        put("my groups/cpu.max", "70000 100000\n")
        assert quota_cores(tmp_path) == 0.7

    @pytest.mark.parametrize(
        ("mounted", "folder"), [("/", "docker/abc/"), ("/docker/abc", ""), ("/docker", "abc/")]
    )
    def test_v1_whatever_part_is_mounted(self, put, tmp_path, mounted, folder):
        put("proc/self/cgroup", "4:memory:/elsewhere\n3:cpu,cpuacct:/docker/abc\n1:name=systemd:/\n0::/\n")
        put("proc/self/mountinfo", OTHER + V1.format(root=mounted))
        put(f"sys/fs/cgroup/cpu,cpuacct/{folder}cpu.cfs_quota_us", "350000\n")
        put(f"sys/fs/cgroup/cpu,cpuacct/{folder}cpu.cfs_period_us", "100000\n")
        assert quota_cores(tmp_path) == 3.5
        put("proc/self/mountinfo", OTHER.replace("/sys/fs/cgroup/memory", "/sys/fs/cgroup/cpu,cpuacct"))
        assert quota_cores(tmp_path) is None, "a limit of another controller"
        put("proc/self/mountinfo", V1.format(root=mounted))
        put(f"sys/fs/cgroup/cpu,cpuacct/{folder}cpu.cfs_quota_us", "-1\n")
        assert quota_cores(tmp_path) is None


@pytest.mark.parametrize(
    ("mount", "names"),
    [
        (V2, ("memory.max", "memory.current", "inactive_file", "max")),
        (OTHER, ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", f"{2**63 - 4096}")),
    ],
)
def test_the_tightest_limit_of_all_groups_above_and_what_files_use_is_free(put, tmp_path, mount, names):
    limit, usage, files, none = names
    put("proc/self/cgroup", "4:memory:/jobs/lane\n0::/jobs/lane\n")
    put("proc/self/mountinfo", mount)
    top = mount.split()[4].lstrip("/")
    for group, most, used in (("jobs/lane", none, 900), ("jobs", 2_000, 1_500), ("", 8_000, 2_000)):
        put(f"{top}/{group}/{limit}", f"{most}\n")
        put(f"{top}/{group}/{usage}", f"{used}\n")
    put(f"{top}/jobs/memory.stat", f"anon 1\n{files} 300\n")
    assert limited_memory(16_000, 9_000, tmp_path) == (2_000, 800)
    assert limited_memory(16_000, 100, tmp_path) == (2_000, 100), "the machine has less"
    put(f"{top}/jobs/{usage}", "2400\n")
    assert limited_memory(16_000, 9_000, tmp_path) == (2_000, 0)
    put("proc/self/mountinfo", "")
    assert limited_memory(16_000, 9_000, tmp_path) == (16_000, 9_000)


@LINUX
@pytest.mark.parametrize(("part", "name"), [("0xd4f", "Neoverse-V2"), ("0xfff", "ARM (maker 0x41, part 0xfff)")])
def test_the_name_of_an_arm_processor(put, tmp_path, part, name):
    put("proc/cpuinfo", f"processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: {part}\n\n")
    assert read_cpu_name(tmp_path) == name


TICK = os.sysconf("SC_CLK_TCK")


def test_every_column_counts_where_it_belongs_and_missing_ones_are_no_reading(put, tmp_path):
    put("meminfo", "MemTotal:       1000 kB\nMemFree:  100 kB\nMemAvailable:    400 kB\nBuffers: 3 kB\n")
    columns = (1, 2, 4, 1000, 2000, 8, 16, 32, 64, 128)
    put("stat", "cpu  " + " ".join(str(TICK * column) for column in columns) + "\ncpu0 1 2 3\n")
    assert read_load(tmp_path) == Load(1 + 2 + 4 + 8 + 16, 600 * 1024, 1000 * 1024, 32)
    put("stat", f"cpu {TICK} 0 0 9\n")
    assert read_load(tmp_path) == Load(1, 600 * 1024, 1000 * 1024, None), "an old kernel counts no stolen time"
    for name, text in (("stat", "intr 1\n"), ("meminfo", "MemTotal: 5 kB\n")):
        put(name, text)
        with pytest.raises(NoReadingError, match=name):
            read_load(tmp_path)
        put("stat", "cpu 1 2 3 4\n")


def test_without_proc_and_psutil_readings_are_missing_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "psutil", None)
    monkeypatch.setattr(sys, "platform", "darwin")
    probe = HostProbe(lambda: {"lane": 4711}, disturbances=Disturbances(tmp_path, platform="darwin"))
    host, tree = probe.sample()
    assert host.cpu_pct == host.memory_used_bytes == Missing(f"the system reports none: {NO_PSUTIL}")
    assert host.swap_in_bytes_per_s == Missing("this system does not report swapping")
    assert (tree.lane, tree.cpu_pct, tree.private_bytes) == ("lane", Missing(NO_PSUTIL), Missing(NO_PSUTIL))
    assert read_swap() is None


SECOND = 1_000_000_000


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


def test_throttling_in_a_group_of_version_1_and_pressure_as_the_share_of_the_last_10_s(put, tmp_path):
    put("proc/self/cgroup", "1:cpu:/docker/x\n0::/\n")
    put("proc/self/mountinfo", "33 25 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n")
    stat = "nr_periods {}\nnr_throttled {}\nthrottled_time {}\n"
    put("sys/fs/cgroup/cpu/docker/x/cpu.stat", stat.format(10, 0, 0))
    put("proc/pressure/cpu", "some avg10=11.31 avg60=8.12 avg300=5.07 total=27\nfull avg10=0.00 total=0\n")
    put("proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
    around = Disturbances(tmp_path, platform="linux")
    sample = SimpleNamespace(**around.read(0, []))
    assert (sample.cpu_pressure_pct, sample.memory_pressure_pct) == (11.31, 0)
    put("sys/fs/cgroup/cpu/docker/x/cpu.stat", stat.format(20, 10, 250_000_000))
    assert around.read(SECOND, [])["throttled_pct"] == pytest.approx(100)

"""The machine and its use: from fixture roots, from psutil, and the reasons for missing readings."""

import os
import sys

import pytest

from tfmon.model.readings import HostSample, Missing, TreeSample
from tfmon.probes.host_probe import HostProbe
from tfmon.probes.machine import (
    NO_PSUTIL,
    Disturbances,
    Load,
    NoReadingError,
    _ask_sysctl,
    memory_bytes,
    read_cpu_name,
    read_load,
    read_machine,
    read_swap,
)
from tfmon.probes.surroundings import LoadWatch, read_host
from tfmon.system.limits import limited_memory, quota_cores

from .conftest import V2

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
V1 = "33 25 0:30 {root} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
OTHER = "34 25 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"


class TestQuota:
    def test_tightest_limit_of_all_groups_above_v2(self, put, tmp_path):
        put("proc/self/cgroup", "0::/user.slice/app.scope\n")
        put("proc/self/mountinfo", OTHER + V2)
        put("sys/fs/cgroup/cpu.stat", "")
        put("sys/fs/cgroup/user.slice/cpu.max", "250000 100000\n")
        put("sys/fs/cgroup/user.slice/app.scope/cpu.max", "400000 100000\n")
        assert quota_cores(tmp_path) == 2.5
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

    @pytest.mark.parametrize("text", ["", "nonsense\n", "30 20\n - \n", "0::\n:::\n"])
    def test_files_that_make_no_sense(self, put, tmp_path, text):
        put("proc/self/cgroup", text)
        put("proc/self/mountinfo", text)
        assert quota_cores(tmp_path) is None


class TestMemory:
    @pytest.mark.parametrize(
        ("mount", "names"),
        [
            (V2, ("memory.max", "memory.current", "inactive_file", "max")),
            (OTHER, ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", f"{2**63 - 4096}")),
        ],
    )
    def test_the_tightest_limit_of_all_groups_above_and_what_files_use_is_free(self, put, tmp_path, mount, names):
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


class TestCpuName:
    pytestmark = LINUX

    @pytest.mark.parametrize(
        ("part", "name"),
        [("0xd4f", "Neoverse-V2"), ("0xfff", "ARM (maker 0x41, part 0xfff)")],
    )
    def test_arm(self, put, tmp_path, part, name):
        put("proc/cpuinfo", f"processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: {part}\n\n")
        assert read_cpu_name(tmp_path) == name

    @pytest.mark.process
    def test_sysctl(self, put, tmp_path):
        put("sysctl", '#!/bin/sh\necho "$2 says Apple M1 Pro"\n')
        (tmp_path / "sysctl").chmod(0o755)
        name = "machdep.cpu.brand_string"
        assert _ask_sysctl(name, str(tmp_path / "sysctl")) == "machdep.cpu.brand_string says Apple M1 Pro"
        assert _ask_sysctl(name, str(tmp_path / "absent")) == ""


class TestThisMachine:
    @LINUX
    def test_boot_and_quota_are_those_of_the_root(self, put, tmp_path):
        assert read_machine(tmp_path).boot == "", "unknown, and equal to no other machine's"
        put("proc/sys/kernel/random/boot_id", "6d1d-42\n")
        put("proc/self/cgroup", "0::/\n")
        put("proc/self/mountinfo", V2)
        put("sys/fs/cgroup/cpu.max", "250000 100000\n")
        machine = read_machine(tmp_path)
        assert (machine.boot, machine.quota_cores) == ("6d1d-42", 2.5)


TICK = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def no_psutil(monkeypatch):
    monkeypatch.setitem(sys.modules, "psutil", None)


class TestProc:
    def test_every_column_counts_where_it_belongs(self, put, tmp_path):
        put("meminfo", "MemTotal:       1000 kB\nMemFree:  100 kB\nMemAvailable:    400 kB\nBuffers: 3 kB\n")
        columns = (1, 2, 4, 1000, 2000, 8, 16, 32, 64, 128)
        put("stat", "cpu  " + " ".join(str(TICK * column) for column in columns) + "\ncpu0 1 2 3\n")
        assert read_load(tmp_path) == Load(1 + 2 + 4 + 8 + 16, 600 * 1024, 1000 * 1024, 32)
        put("stat", f"cpu {TICK} 0 0 9\n")
        assert read_load(tmp_path) == Load(1, 600 * 1024, 1000 * 1024, None), "an old kernel counts no stolen time"

    @pytest.mark.parametrize(("name", "text"), [("stat", "intr 1\n"), ("meminfo", "MemTotal: 5 kB\n")])
    def test_what_is_not_there_is_no_reading(self, put, tmp_path, name, text):
        put("meminfo", "MemTotal: 1000 kB\nMemAvailable: 400 kB\n")
        put("stat", "cpu 1 2 3 4\n")
        put(name, text)
        with pytest.raises(NoReadingError, match=name):
            read_load(tmp_path)

    @LINUX
    def test_nothing_is_missing_without_psutil(self, no_psutil):
        probe = HostProbe(lambda: {"lane": os.getpid()})
        host, tree = probe.sample()
        assert isinstance(host, HostSample) and host.memory_used_bytes > 0
        assert isinstance(tree, TreeSample) and tree.private_bytes > 0
        assert read_machine().memory_bytes == memory_bytes()


class TestElsewhere:
    """A system without /proc and without psutil, which is needed there."""

    @pytest.fixture(autouse=True)
    def elsewhere(self, no_psutil, monkeypatch):
        monkeypatch.setattr(sys, "platform", "darwin")

    def test_readings_are_missing_with_the_reason(self, tmp_path):
        probe = HostProbe(lambda: {"lane": 4711}, disturbances=Disturbances(tmp_path, platform="darwin"))
        host, tree = probe.sample()
        assert host.cpu_pct == host.memory_used_bytes == Missing(f"the system reports none: {NO_PSUTIL}")
        assert host.swap_in_bytes_per_s == Missing("this system does not report swapping")
        assert (tree.lane, tree.cpu_pct, tree.private_bytes) == ("lane", Missing(NO_PSUTIL), Missing(NO_PSUTIL))
        assert read_swap() is None

    @pytest.mark.process  # on macOS it asks sysctl for the processor
    def test_the_doctor_does_without(self, tmp_path):
        others = LoadWatch().finish()
        assert (others.cores, others.stolen_share) == (None, None)
        assert others.source.endswith(NO_PSUTIL)
        assert read_host(tmp_path, others).total_bytes == 0

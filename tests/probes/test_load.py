"""What the machine has used, without psutil: from /proc on Linux, and why there is nothing elsewhere."""

from __future__ import annotations

import os
import sys

import psutil
import pytest
from support.waiting import wait_for

from tfmon.doctor.gather import LoadWatch, read_host
from tfmon.model.readings import HostSample, Missing, TreeSample
from tfmon.probes.host import HostProbe
from tfmon.probes.machine import (
    NO_PSUTIL,
    Disturbances,
    Load,
    NoReadingError,
    memory_bytes,
    read_load,
    read_machine,
    read_memory,
    read_swap,
)

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
TICK = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def no_psutil(monkeypatch):
    monkeypatch.setitem(sys.modules, "psutil", None)


class TestProc:
    def test_every_column_counts_where_it_belongs(self, put, tmp_path):
        put("meminfo", "MemTotal:       1000 kB\nMemFree:  100 kB\nMemAvailable:    400 kB\nBuffers: 3 kB\n")
        columns = (1, 2, 4, 1000, 2000, 8, 16, 32, 64, 128)
        put("stat", "cpu  " + " ".join(str(TICK * one) for one in columns) + "\ncpu0 1 2 3\n")
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
    def test_as_psutil_says(self):
        before, theirs, after = read_load(), psutil.cpu_times(), read_load()
        busy_s = theirs.user + theirs.nice + theirs.system + theirs.irq + theirs.softirq
        assert before.busy_s - 1 <= busy_s <= after.busy_s + 1
        assert before.stolen_s - 1 <= theirs.steal <= after.stolen_s + 1
        total = psutil.virtual_memory().total
        assert (before.total_bytes, memory_bytes()) == (total, total)
        wait_for(lambda: read_memory()[1] == pytest.approx(psutil.virtual_memory().available, rel=0.1))

    @LINUX
    def test_nothing_is_missing_without_psutil(self, no_psutil):
        probe = HostProbe(lambda: {"lane": os.getpid()})
        host, tree = probe.sample()
        assert isinstance(host, HostSample) and host.memory_used_bytes > 0
        assert isinstance(tree, TreeSample) and tree.private_bytes > 0
        assert read_machine().memory_bytes == memory_bytes()


class TestElsewhere:
    """A system without /proc, where psutil is needed and not installed."""

    @pytest.fixture(autouse=True)
    def elsewhere(self, no_psutil, monkeypatch):
        monkeypatch.setattr(sys, "platform", "darwin")

    def test_readings_are_missing_with_the_reason(self, tmp_path):
        lanes = {"lane": 4711, " ": 4712}
        probe = HostProbe(lambda: lanes, disturbances=Disturbances(tmp_path, platform="darwin"))
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

"""Checks of what makes a race unfair, each with the fault and without."""

from __future__ import annotations

import os
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tfmon.doctor import machine as host_module
from tfmon.doctor.checks import NOT_APPLICABLE, OK, WARNING
from tfmon.doctor.facts import Host, OthersLoad
from tfmon.model.views import COPY, IN_PLACE, OVERLAY, View
from tfmon.probes.load import Load

from .bench import H200, QUIET, find, with_gpu

OTHER = replace(H200, index=1, uuid="GPU-bb")
GPU_CHECKS = ("gpu-free", "gpu-power", "gpu-persistence", "gpu-link", "gpu-throttling")
HOST_CHECKS = ("cores", "memory", "swap", "load", "steal", "environment")


def test_nothing_is_wrong_with_a_quiet_machine(bench):
    facts = with_gpu(bench.facts(host=QUIET))
    for id in (*GPU_CHECKS, *HOST_CHECKS):
        finding = find(id, facts)
        assert (finding.status, finding.fix) == (OK, ""), finding
        if id in GPU_CHECKS:
            assert bench.find(id).status == NOT_APPLICABLE
    silent = replace(H200, power_default_w=None, persistence=None, pcie_width=None, clock_reasons=None)
    for id in GPU_CHECKS[1:]:
        assert find(id, with_gpu(facts, silent)).found == "not reported by the driver"


class TestGpu:
    @pytest.mark.parametrize(
        ("id", "change", "found", "fix"),
        [
            ("gpu-free", {"busy_pct": 87.0, "processes": (4242,)}, "busy 87 %", "end what runs there"),
            ("gpu-free", {"used_bytes": 90_000_000_000}, "84 GiB of 140 GiB used", "end what runs there"),
            ("gpu-power", {"power_limit_w": 350.0}, "limited to 350 W", "nvidia-smi -i 0 -pl 700"),
            ("gpu-persistence", {"persistence": False}, "off on GPU 0", "nvidia-smi -pm 1"),
            ("gpu-link", {"pcie_width": 4}, "GPU 0 has 4 lanes", "reseat it"),
            ("gpu-link", {"busy_pct": 90.0}, "runs at PCIe 1 while it is busy", "firmware"),
            ("gpu-throttling", {"clock_reasons": 0x44, "temperature_c": 92.0}, "overheating", "cool it"),
            ("gpu-throttling", {"clock_reasons": 0x20}, "hot: ", "cool it"),
        ],
    )
    def test_fault(self, bench, id, change, found, fix):
        finding = find(id, with_gpu(bench.facts(), replace(H200, **change)))
        assert (finding.status, found in finding.found, fix in finding.fix) == (WARNING, True, True), finding

    def test_lanes_of_the_race_are_no_other_programs(self, bench):
        facts = with_gpu(bench.facts(), replace(H200, busy_pct=87.0, processes=(11, 12)))
        assert find("gpu-free", replace(facts, own_pids=frozenset({11, 12, 13}))).status == OK
        assert find("gpu-free", replace(facts, own_pids=frozenset({11}))).status == WARNING, (
            "12 is another program"
        )

    def test_no_fault_and_another_gpu_that_is_free(self, bench):
        reached = replace(H200, clock_reasons=0xC)
        assert find("gpu-throttling", with_gpu(bench.facts(), reached)).status == OK, (
            "a normal power limit, and an instant"
        )
        silent = replace(H200, busy_pct=None, used_bytes=None, total_bytes=None, processes=None)
        assert find("gpu-free", with_gpu(bench.facts(), silent)).found == "GPU 0 busy n/a"
        busy = replace(H200, busy_pct=95.0)
        finding = find("gpu-free", with_gpu(bench.facts(), busy, OTHER))
        assert finding.fix == "use another one: export CUDA_VISIBLE_DEVICES=GPU-bb"
        assert find("gpu-free", with_gpu(bench.facts(), busy, OTHER, visible="GPU-bb")).status == OK


class TestHost:
    @pytest.mark.parametrize(
        ("id", "change", "found", "fix"),
        [
            ("cores", {"quota_cores": 2.5}, "a quota of 2.5 cores on a machine of 8", "--set threads=2"),
            ("cores", {"quota_cores": 0.5}, "a quota of 0.5 cores", "--set threads=1"),
            ("cores", {"affinity": 4}, "4 of 8 cores", "taskset"),
            ("governor", {"governors": ("powersave",)}, "powersave", "cpupower frequency-set -g performance"),
            ("turbo", {"turbo": False}, "off", "no_turbo"),
            ("memory", {"available_bytes": 1024**3}, "1.0 GiB of 32 GiB", "end other programs"),
            ("swap", {"swap_used_bytes": 3 * 1024**3}, "3.0 GiB used", "swapoff"),
            ("load", {"others": OthersLoad(cores=3.0)}, "3.0 of 8 cores busy", "top"),
            ("steal", {"others": OthersLoad(stolen_share=0.1)}, "10 %", "dedicated cores"),
            ("power", {"on_battery": True}, "on battery", "plug it in"),
        ],
    )
    def test_fault(self, bench, id, change, found, fix):
        finding = bench.find(id, host=replace(QUIET, **change))
        assert (finding.status, found in finding.found, fix in finding.fix) == (WARNING, True, True), finding

    def test_no_fault_or_unknown(self, bench):
        fine = replace(
            QUIET, governors=("performance", "schedutil"), turbo=True, on_battery=False, swap_used_bytes=1024**2,
            quota_cores=8.0,
        )  # fmt: skip
        facts = bench.facts()
        assert {
            find(id, replace(facts, host=fine)).status for id in ("governor", "turbo", "power", "swap", "cores")
        } == {OK}
        for id in ("governor", "turbo", "power", "load", "steal", "memory"):
            assert find(id, replace(facts, host=Host())).status == NOT_APPLICABLE

    @pytest.mark.parametrize(
        ("name", "value", "found"),
        [
            ("CUDA_LAUNCH_BLOCKING", "1", "every kernel launch waits"),
            ("TF_ENABLE_ONEDNN_OPTS", "0", "without oneDNN"),
            ("OMP_NUM_THREADS", "1", "fewer threads than cores"),
            ("TF_XLA_FLAGS", "--tf_xla_auto_jit=2", "XLA is on"),
        ],
    )
    def test_variables(self, bench, name, value, found):
        bench.environ[name] = value
        finding = bench.find("environment", host=QUIET)
        assert (finding.status, found in finding.found, finding.fix) == (WARNING, True, f"unset {name}")
        bench.environ |= {"OMP_NUM_THREADS": "8", "TF_ENABLE_ONEDNN_OPTS": "1", "CUDA_LAUNCH_BLOCKING": "0"}
        bench.environ["TF_XLA_FLAGS"] = ""
        assert bench.find("environment", host=QUIET).status == OK


class TestRead:
    """The same faults, read from the files of a machine."""

    def test_governor_boost_and_battery(self, bench):
        for core in range(2):
            bench.write(f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor", "powersave\n")
        bench.write("sys/devices/system/cpu/intel_pstate/no_turbo", "1\n")
        bench.write("sys/class/power_supply/AC/type", "Mains\n")
        bench.write("sys/class/power_supply/AC/online", "0\n")
        host = bench.facts().host
        assert (host.governors, host.turbo, host.on_battery) == (("powersave",), False, True)
        bench.write("sys/devices/system/cpu/intel_pstate/no_turbo", "0\n")
        bench.write("sys/class/power_supply/AC/online", "1\n")
        host = bench.facts().host
        assert (host.turbo, host.on_battery) == (True, False)
        (bench.root / "sys/devices/system/cpu/intel_pstate/no_turbo").unlink()
        bench.write("sys/devices/system/cpu/cpufreq/boost", "0\n")  # AMD
        assert bench.find("turbo").status == WARNING

    def test_quota(self, bench):
        bench.write("proc/self/cgroup", "0::/\n")
        bench.write("proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n")
        bench.write("sys/fs/cgroup/cpu.max", "50000 100000\n")
        bench.write("sys/fs/cgroup/cpu.stat", "nr_periods 200\nnr_throttled 50\nthrottled_usec 7\n")
        finding = bench.find("cores")
        assert finding.found.startswith("a quota of 0.5 cores")
        assert "used up in 25 % of its periods" in finding.evidence
        bench.write("sys/fs/cgroup/cpu.max", "max 100000\n")
        assert bench.facts().host.quota_cores is None

    def test_memory_and_swap(self, bench):
        assert (bench.find("memory").status, bench.find("swap").status) == (OK, OK)
        bench.memory(available_mib=900, swap_used_mib=2_000)
        assert (bench.find("memory").status, bench.find("swap").found) == (WARNING, "2.0 GiB used")
        (bench.root / "proc/meminfo").unlink()
        host = bench.facts().host
        assert host.total_bytes > host.available_bytes > 0, "psutil reads it instead"
        assert host.others.cores is not None

    @pytest.mark.parametrize(
        ("limit", "used"),
        [("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")],
    )
    def test_memory_of_a_container(self, bench, limit, used):
        bench.write(f"sys/fs/cgroup/{limit}", f"{4 * 1024**3}\n")
        bench.write(f"sys/fs/cgroup/{used}", f"{3 * 1024**3}\n")
        assert bench.find("memory").found == "1.0 GiB of 4.0 GiB available"
        bench.write(f"sys/fs/cgroup/{limit}", "max\n" if "max" in limit else "9223372036854771712\n")
        assert bench.find("memory").status == OK

    def test_load_and_stolen_time(self, monkeypatch):
        seconds, own = iter([100.0, 102.0, 102.0]), iter([7.0, 7.4])
        clock = SimpleNamespace(monotonic=lambda: next(seconds), sleep=lambda _s: None)
        monkeypatch.setattr(host_module, "time", clock)
        monkeypatch.setattr(host_module, "_own_cpu_s", lambda: next(own))
        loads = iter([Load(busy_s=10.0, used_bytes=0, total_bytes=1, stolen_s=1.0), Load(13.0, 0, 1, 1.5)])
        others = host_module.LoadWatch(lambda: next(loads)).finish()
        assert others.cores == pytest.approx(1.3), "3 s of CPU time in 2 s, less our own 0.4 s"
        assert others.stolen_share == pytest.approx(0.25 / os.cpu_count())


@pytest.mark.parametrize(("kind", "found"), [(COPY, "each lane gets a copy"), (IN_PLACE, "the folder itself")])
def test_lanes_without_views_say_why(bench, kind, found):
    view = View(kind, "/home/u/project", "unshare: Operation not permitted")
    finding = find("views", replace(bench.facts(), view=view))
    assert (finding.status, found in finding.found, finding.evidence) == (WARNING, True, (view.reason,))
    assert find("views", replace(bench.facts(), view=replace(view, kind=OVERLAY))).status == OK
    assert find("views", bench.facts()).status == NOT_APPLICABLE

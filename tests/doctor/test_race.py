"""Checks of the causes of an unfair race, each with the fault and without."""

from dataclasses import replace

import pytest

from tfmon.doctor.checks import NOT_APPLICABLE, OK, WARNING
from tfmon.model.folder_views import COPY, IN_PLACE, OVERLAY, View
from tfmon.probes.base import absent_gpu
from tfmon.probes.nvidia.power import explain
from tfmon.probes.surroundings import HostFacts, OthersLoad

from .bench import H200, QUIET, find, sample_of, with_gpu

OTHER = replace(H200, index=1, uuid="GPU-bb")
UNKNOWN = absent_gpu(H200, 1, "not supported by this driver")


class TestGpu:
    def test_power_limit(self, bench):
        finding = find("gpu-power", with_gpu(bench.facts(), replace(H200, power_limit_w=350.0)))
        assert (finding.status, "limited to 350 W" in finding.found) == (WARNING, True)
        assert "nvidia-smi -i 0 -pl 700" in finding.fix

    @pytest.mark.parametrize(
        ("id", "change", "found", "fix"),
        [
            ("gpu-free", {"busy_pct": 87.0, "used_by_pid": {4242: None}}, "busy 87 %", "end what runs there"),
            ("gpu-free", {"used_bytes": 9e10}, "84 GiB of 140 GiB used", "end what runs there"),
            ("gpu-clocks", {"warning": "the PCIe link has 4 of 16 lanes"}, "4 of 16 lanes", "reseat it"),
            ("gpu-clocks", {"reasons": explain(0x44, below=False)}, "overheating", "cool it"),
            ("gpu-clocks", {"reasons": explain(0x20, below=False)}, "hot: ", "cool it"),
        ],
    )
    def test_reading(self, bench, id, change, found, fix):
        finding = find(id, with_gpu(bench.facts(), samples=(sample_of(H200, **change),)))
        assert (finding.status, found in finding.found, fix in finding.fix) == (WARNING, True, True), finding

    def test_lanes_of_the_race_are_no_other_programs(self, bench):
        busy = sample_of(H200, busy_pct=87.0, used_by_pid={11: 1, 12: 1})
        facts = with_gpu(bench.facts(), samples=(busy,))
        assert find("gpu-free", replace(facts, own_pids=(11, 12, 13))).status == OK
        assert find("gpu-free", replace(facts, own_pids=(11,))).status == WARNING, "12 is another program"

    def test_no_fault_and_another_gpu_that_is_free(self, bench):
        reached = sample_of(H200, reasons=explain(0x4, below=False))
        assert find("gpu-clocks", with_gpu(bench.facts(), samples=(reached,))).status == OK, "a normal power limit"
        assert find("gpu-free", with_gpu(bench.facts(), samples=(UNKNOWN,))).found == "GPU 0 busy n/a"
        samples = (sample_of(H200, busy_pct=95.0), sample_of(OTHER))
        finding = find("gpu-free", with_gpu(bench.facts(), H200, OTHER, samples=samples))
        assert finding.fix == "use another one: export CUDA_VISIBLE_DEVICES=GPU-bb"
        seen = with_gpu(bench.facts(), H200, OTHER, samples=samples, visible="GPU-bb")
        assert find("gpu-free", seen).status == OK


class TestHost:
    @pytest.mark.parametrize(
        ("id", "change", "found", "fix"),
        [
            ("cores", {"quota_cores": 2.5, "usable_cores": 2.5}, "2.5 cores on a machine of 8", "--set threads=2"),
            ("cores", {"quota_cores": 0.5, "usable_cores": 0.5}, "a quota of 0.5 cores", "--set threads=1"),
            ("cores", {"usable_cores": 4}, "4 of 8 cores", "taskset"),
            ("governor", {"governors": ("powersave",)}, "powersave", "cpupower frequency-set -g performance"),
            ("memory", {"available_bytes": 1024**3}, "1.0 GiB of 32 GiB", "end other programs"),
            ("load", {"others": OthersLoad(cores=3.0)}, "3.0 of 8 cores busy", "top"),
            ("load", {"others": OthersLoad(0.0, 0.1)}, "10 % of the CPU time", "dedicated cores"),
            ("power", {"on_battery": True}, "on battery", "plug it in"),
        ],
    )
    def test_fault(self, bench, id, change, found, fix):
        finding = bench.find(id, host=replace(QUIET, **change))
        assert (finding.status, found in finding.found, fix in finding.fix) == (WARNING, True, True), finding

    def test_no_fault_or_unknown(self, bench):
        fine = replace(QUIET, governors=("performance", "schedutil"), on_battery=False, quota_cores=8.0)
        facts = bench.facts()
        assert {find(id, replace(facts, host=fine)).status for id in ("governor", "power", "cores")} == {OK}
        for id in ("governor", "power", "load", "memory"):
            assert find(id, replace(facts, host=HostFacts())).status == NOT_APPLICABLE

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


@pytest.mark.parametrize(("kind", "found"), [(COPY, "each lane gets a copy"), (IN_PLACE, "the folder itself")])
def test_lanes_without_views_say_why(bench, kind, found):
    view = View(kind, "/home/u/project", "unshare: Operation not permitted")
    finding = find("views", replace(bench.facts(), view=view))
    assert (finding.status, found in finding.found, finding.evidence) == (WARNING, True, (view.reason,))
    assert find("views", replace(bench.facts(), view=replace(view, kind=OVERLAY))).status == OK
    assert find("views", bench.facts()).status == NOT_APPLICABLE

"""NVIDIA GPUs that are split up (MIG), in containers, under WSL2, and without separate memory."""

import sys

import psutil
import pynvml
import pytest
from support.mig import FIRST_UUID, SECOND_UUID, SPLIT
from support.nvml import BUSY, IDLE, TWO_GPUS, take
from support.waiting import PATIENCE_S

from tfmon.model.readings import Missing
from tfmon.probes.base import Gpu
from tfmon.probes.machine import in_pid_namespace, in_wsl
from tfmon.probes.nvidia.probe import NvidiaProbe, survives_sampling

pytestmark = pytest.mark.process

GB = 1_000_000_000


class TestSplit:
    def test_instances_are_devices_of_their_own(self, driver, clock):
        driver.play(SPLIT + "util 10 50 50\nutil 0 50 50\n")
        whole, idle, one, two = take(NvidiaProbe([BUSY, IDLE], clock_ns=clock))
        assert (whole.key, idle.key, one.key, two.key) == (BUSY.uuid, IDLE.uuid, FIRST_UUID, SECOND_UUID)
        assert (whole.part_of, one.part_of, idle.part_of) == ("", BUSY.uuid, "")
        assert (one.index, one.name) == (0, "NVIDIA Busy MIG 1g.10gb")
        assert (one.memory.used_bytes, one.memory.total_bytes) == (3 * GB, 10 * GB)
        assert (two.memory.used_bytes, two.memory.total_bytes) == (0, 20 * GB)
        assert one.processes.used_by_pid == {4242: 2.5 * GB}
        assert two.processes.used_by_pid == {}
        unknown = Missing("not reported for a GPU that is split up (MIG)")
        assert whole.load.busy_pct == one.processes.busy_by_pid == unknown
        assert one.load.busy_pct == Missing("the driver does not report the load of an instance (MIG) of this GPU")
        assert idle.load.busy_pct == 0
        driver.play(SPLIT.replace("mig 0 1", "mig 0 0"))
        assert [sample.key for sample in take(NvidiaProbe([BUSY], clock_ns=clock))] == [BUSY.uuid]

    def test_power_clocks_and_messages_are_those_of_the_whole_gpu(self, driver, clock):
        driver.play(SPLIT)
        probe = NvidiaProbe([BUSY], clock_ns=clock)
        take(probe)
        clock.pass_s(1)
        driver.play(SPLIT.replace("energy 0 7000000", "energy 0 7200000") + "xid 0 94\n")
        whole, one, two = take(probe)
        assert [[fault.code for fault in sample.faults] for sample in (whole, one, two)] == [[94]] * 3
        assert whole.power.power_w == one.power.power_w == two.power.power_w == pytest.approx(200)
        assert (one.clocks.sm_clock_mhz, one.temperature_c) == (1500, 61)

    def test_an_instance_that_is_gone(self, driver, clock):
        driver.play(SPLIT + "ret DeviceGetTemperatureV 15\nret DeviceGetTemperature 15\n")
        probe = NvidiaProbe([BUSY], clock_ns=clock)
        take(probe)  # all are lost
        driver.play(SPLIT.replace(f"uuid 13 {SECOND_UUID}\n", ""))
        clock.pass_s(61)
        whole, one, two = take(probe)
        assert (whole.temperature_c, one.temperature_c) == (61, 61)
        assert two.temperature_c == Missing("the driver no longer lists this GPU")
        assert two.part_of == BUSY.uuid


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_pids_may_be_those_of_the_host_of_a_container(driver, clock, tmp_path, put, monkeypatch):
    (sample,) = take(NvidiaProbe([BUSY], clock_ns=clock, root=tmp_path, survives=pytest.fail))  # no WSL2
    assert (sample.processes.foreign_pids, sample.load.busy_pct) == (False, 87)
    file = put("proc/self/ns/pid", "")
    (sample,) = take(NvidiaProbe([BUSY], clock_ns=clock, root=tmp_path))
    assert sample.processes.foreign_pids
    monkeypatch.setattr("tfmon.probes.machine._FIRST_NAMESPACE", file.stat().st_ino)
    assert not in_pid_namespace(tmp_path)


class TestWsl:
    @pytest.fixture
    def windows(self, tmp_path, put):
        assert not in_wsl(tmp_path)
        file = put("dev/dxg", "")
        assert in_wsl(tmp_path)
        file.unlink()
        put("proc/version", "Linux version 5.15.90.1-microsoft-standard-WSL2\n")
        return tmp_path

    def test_functions_about_processes_are_not_called(self, driver, clock, windows):
        driver.play(TWO_GPUS + "hang DeviceGetComputeRunningProcesses_v3\nhang DeviceGetProcessUtilization\n")
        (sample,) = take(NvidiaProbe([BUSY], clock_ns=clock, root=windows, survives=lambda: True))
        assert (
            sample.processes.no_list_reason
            == sample.processes.busy_by_pid.reason
            == "WSL2 does not report which process uses the GPU"
        )
        assert (sample.processes.used_by_pid, sample.load.busy_pct) == ({}, 87)

    @pytest.mark.parametrize(("survives", "words"), [(False, "crashes"), (None, "does not answer")])
    def test_a_library_that_crashes_is_tried_once_and_not_opened(self, driver, clock, windows, survives, words):
        trials = [survives]
        probe = NvidiaProbe([BUSY], clock_ns=clock, root=windows, survives=trials.pop)
        for _ in range(3):
            assert words in take(probe)[0].load.busy_pct.reason
            clock.pass_s(1_000)
        assert pynvml._nvmlLib_refcount == 0

    def test_the_trial(self, driver):
        run = (sys.executable, "-S", "-c")
        for script, survives in (
            ("", True),
            ("raise SystemExit(3)", True),
            ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", False),
        ):
            assert survives_sampling((*run, script), timeout_s=PATIENCE_S) is survives
        assert survives_sampling((*run, "import time; time.sleep(60)"), timeout_s=0.05) is None
        assert survives_sampling(("/no/such/program",)) is True

    @pytest.mark.parametrize("script", ["", "hang InitWithFlags\n"])
    def test_the_real_trial_opens_the_library(self, driver, script, monkeypatch):
        driver.play(TWO_GPUS + script)
        monkeypatch.setenv("LD_LIBRARY_PATH", str(driver.library.parent))
        assert survives_sampling(timeout_s=1 if script else PATIENCE_S) is (None if script else True)


@pytest.mark.parametrize(("name", "unified"), [("Orin_(nvgpu)", True), ("NVIDIA_GRID", False)])
def test_a_gpu_without_memory_of_its_own_has_that_of_the_machine(driver, clock, name, unified):
    driver.play(f"count 1\nname 0 {name}\nuuid 0 GPU-0r10\n")
    gpu = Gpu(index=0, uuid="GPU-0r10", name=name.replace("_", " "), physical_gpu=0)
    (sample,) = take(NvidiaProbe([gpu], clock_ns=clock))
    unsupported = Missing("not supported by this GPU")
    assert sample.load.busy_pct == sample.power.power_w == unsupported
    total = psutil.virtual_memory().total if unified else unsupported
    assert (sample.memory.total_bytes, sample.memory.unified) == (total, unified)

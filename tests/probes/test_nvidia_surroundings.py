"""NVIDIA GPUs in containers, under WSL2, without separate memory, and with a slow driver."""

import sys
from types import SimpleNamespace

import psutil
import pynvml
import pytest
from support.nvml import BUSY, IDLE, TWO_GPUS, take
from support.waiting import PATIENCE_S

from tfmon.model.readings import Missing
from tfmon.probes.base import Backoff, Gpu
from tfmon.probes.machine import in_pid_namespace, in_wsl
from tfmon.probes.nvidia.probe import NvidiaProbe, survives_sampling

pytestmark = pytest.mark.process


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
            clock.ahead(1_000)
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


def test_a_slow_call_is_repeated_seldom_and_only_for_its_gpu(driver, monkeypatch, clock):
    slow, real = SimpleNamespace(took_s=0.08, calls=0), pynvml.nvmlDeviceGetUtilizationRates

    def rates(handle):
        if pynvml.nvmlDeviceGetUUID(handle) == BUSY.uuid:
            slow.calls += 1
            clock.ahead(slow.took_s)  # nothing else moves this clock
        return real(handle)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetUtilizationRates", rates)
    probe = NvidiaProbe([BUSY, IDLE], clock_ns=clock)
    assert take(probe)[0].slow == (), "one slow call may have waited for a core"
    clock.ahead(1)
    busy, idle = take(probe)
    (one,) = busy.slow
    assert (one.name, one.took_ms, one.every_s, idle.slow) == ("load", 80, pytest.approx(8), ())
    driver.play(TWO_GPUS.replace("util 0 87", "util 0 12"))
    clock.ahead(3)
    asked = slow.calls
    busy, _ = take(probe)
    assert slow.calls == asked
    assert (busy.load.busy_pct, round(busy.age_s("load")), busy.age_s("memory")) == (87, 3, 0)
    clock.ahead(one.every_s)
    busy, _ = take(probe)
    assert (busy.load.busy_pct, round(busy.age_s("load"))) == (12, 0)
    slow.took_s = 0
    clock.ahead(61)
    assert take(probe)[0].slow == (), "a driver that is fast again is asked as before"
    probe.close()


def test_one_that_is_slow_every_other_time_counts_too(clock):
    backoff = Backoff(clock)
    for took_s, slow in ((0.06, 0), (0.001, 0), (0.06, 1)):
        clock.ahead(1)

        def read(took_s=took_s):
            clock.ahead(took_s)
            return {"busy_pct": 1}

        backoff.read("load", read)
        assert len(backoff.slow) == slow

"""The Apple probe against a scripted `ioreg`, with answers as the real one gives them."""

import plistlib
from pathlib import Path

import psutil
import pytest
from support.nvml import Clock
from support.waiting import PATIENCE_S

from tfmon.model.gpu_samples import GpuSample
from tfmon.model.readings import Missing
from tfmon.probes.base import Gpu
from tfmon.probes.other_gpus import AppleProbe

pytestmark = pytest.mark.process

ANSWER = Path(__file__).parent / "data" / "ioreg-accelerator.plist"
GPU = Gpu(index=0, uuid="apple-gpu-0", name="Apple GPU", physical_gpu=0)


@pytest.fixture
def registry(tmp_path, monkeypatch) -> Path:
    """Return a fake `ioreg`, which notes its calls beside itself and answers with a file."""
    monkeypatch.setattr("tfmon.probes.other_gpus.TIMEOUT_S", PATIENCE_S)
    monkeypatch.setenv("DYLD_INSERT_LIBRARIES", "/some/library")  # the script fails if `ioreg` gets it
    program = tmp_path / "ioreg"
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\ntest -z "$DYLD_INSERT_LIBRARIES" || exit 1\n'
        f"cat {tmp_path}/answer\n"
    )
    program.chmod(0o755)
    (tmp_path / "answer").write_bytes(ANSWER.read_bytes())
    return program


def take(probe) -> GpuSample:
    (sample,) = probe.sample()
    return sample


def test_readings_of_the_device(registry, clock):
    probe = AppleProbe(GPU, program=str(registry), clock_ns=clock)
    sample = take(probe)
    assert (sample.key, sample.index, sample.name) == ("apple-gpu-0", 0, "Apple M1 Pro")
    assert (sample.load.busy_pct, sample.load.source) == (87, "ioreg")
    assert sample.processes.busy_by_pid == Missing(sample.processes.no_list_reason)
    assert (sample.memory.used_bytes, sample.memory.unified) == (507330560, True)
    assert sample.memory.total_bytes == psutil.virtual_memory().total
    assert sample.power.power_w == sample.clocks.sm_clock_mhz == Missing("macOS reports it to root only")
    clock.pass_s(1)
    assert list(probe.sample()) == []
    calls = registry.with_name("calls").read_text()
    assert calls == "-a -r -d 1 -w 0 -c IOAccelerator\n", "between samples it is not run"
    device = plistlib.loads(ANSWER.read_bytes())
    for reported, busy in ((130, 100), (0, 0), (-1, 0)):
        device[0]["PerformanceStatistics"]["Device Utilization %"] = reported
        registry.with_name("answer").write_bytes(plistlib.dumps(device))
        clock.pass_s(2)
        sample = take(probe)
        assert (sample.load.busy_pct, sample.every_s) == (busy, 2)


def test_a_slow_ioreg_is_run_less_often(registry):
    class Slow(Clock):
        def __call__(self) -> int:
            self.now_ns += 60_000_000
            return self.now_ns

    clock = Slow()
    probe = AppleProbe(GPU, program=str(registry), clock_ns=clock)
    assert take(probe).every_s == 5
    clock.pass_s(3)
    assert list(probe.sample()) == []
    clock.pass_s(2)
    assert take(probe).every_s == 5


def test_program_that_is_not_there_or_does_not_answer(registry, clock, monkeypatch):
    absent = AppleProbe(GPU, program=str(registry.with_name("absent")), clock_ns=clock)
    assert take(absent).load.busy_pct == Missing("ioreg could not be run: No such file or directory")
    registry.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr("tfmon.probes.other_gpus.TIMEOUT_S", 0.05)
    silent = AppleProbe(GPU, program=str(registry), clock_ns=clock)
    assert take(silent).load.busy_pct == Missing("ioreg does not answer")

"""AMD GPUs from fake trees of /sys, and the Apple GPU by a scripted `ioreg` with answers of the real one."""

import plistlib
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from support.waiting import PATIENCE_S

from tfmon.model.gpu_samples import GpuSample
from tfmon.model.readings import Missing
from tfmon.probes.base import Gpu
from tfmon.probes.find_gpus import GpuSearch, conclude, gpu_probes, read_visibility
from tfmon.probes.interpreter import Wheel
from tfmon.probes.other_gpus import AmdProbe, AppleProbe

pytestmark = pytest.mark.process
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /sys")

FIRST = Gpu(0, "AMD-8fa5d41e0b2c7301", "AMD Instinct MI210", physical_gpu=0)
ROCM = Wheel("tensorflow-rocm", "2.18.1", False, "", rocm=True)
CPU_ONLY = Wheel("tensorflow-cpu", "2.21.0", False, "")


@pytest.fixture
def root(tmp_path, put: Callable[[str, str], object]):
    """A machine with a processor, a server's GPU and a desktop's GPU, as Linux 6.8 shows them."""
    nodes = {
        0: "cpu_cores_count 64\nsimd_count 0\nvendor_id 0\nlocation_id 0\n",
        1: "cpu_cores_count 0\nsimd_count 416\nvendor_id 4098\nlocation_id 9984\ndomain 0\ndrm_render_minor 128\n"
        "unique_id 10350912544082522881\ngfx_target_version 90010\n",
        10: "simd_count 192\nvendor_id 4098\nlocation_id 17152\ndomain 0\ndrm_render_minor 129\nunique_id 0\n"
        "gfx_target_version 110000\n",
    }
    for number, text in nodes.items():
        put(f"sys/class/kfd/kfd/topology/nodes/{number}/properties", text)
    files = {
        "product_name": "AMD Instinct MI210", "gpu_busy_percent": "?", "mem_info_vram_total": "68702699520",
        "hwmon/hwmon3/power1_average": "212000000", "hwmon/hwmon3/temp1_input": "61500",
    }  # fmt: skip
    for name, text in files.items():
        put(f"sys/class/drm/renderD128/device/{name}", f"{text}\n")
    return tmp_path


@pytest.fixture
def search(root):
    def look(wheel: Wheel | None = ROCM, **environ: str) -> GpuSearch:
        seen = read_visibility(environ=environ, library="libno-such-driver.so.1", root=root, system="Linux")
        return conclude(seen, lambda: wheel)

    return look


@LINUX
@pytest.mark.parametrize("name", ["HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"])
def test_none_is_found_where_a_variable_may_hide_some(search, name):
    found = search(**{name: "1"})
    assert (found.gpus, name in found.reason, found.hint.partition(";")[0]) == ((), True, f"unset {name}")


@LINUX
def test_a_tensorflow_without_rocm_beside_an_nvidia_gpu_or_not(search, put):
    found = search(CPU_ONLY)
    assert found.gpus == ()
    assert "an AMD GPU, but this TensorFlow (tensorflow-cpu) is not built for ROCm" in found.reason
    assert len(search(None).gpus) == 2, "a lane reports a TensorFlow that is not installed"
    put("sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n")
    put("sys/bus/pci/devices/0000:01:00.0/class", "0x030000\n")
    assert search(CPU_ONLY).reason.startswith("there is an NVIDIA GPU, but no driver")
    assert len(search(ROCM).gpus) == 2, "this TensorFlow is for the other GPU"


@LINUX
def test_readings_of_a_gpu_that_sleeps_and_says_nonsense(root):
    assert isinstance(gpu_probes([FIRST])[0], AmdProbe)
    # Reading a folder fails, as a file of a sleeping GPU does.
    (root / "sys/class/drm/renderD128/device/mem_info_vram_used").mkdir()
    (sample,) = (one for one in AmdProbe([FIRST], root=root).sample() if isinstance(one, GpuSample))
    assert (sample.memory.total_bytes, sample.power.power_w, sample.temperature_c) == (68702699520, 212, 61.5)
    assert isinstance(sample.load.busy_pct, Missing) and isinstance(sample.memory.used_bytes, Missing)
    assert sample.memory.used_bytes.reason.startswith("the kernel does not report it now: ")


ANSWER = Path(__file__).parent / "data" / "ioreg-accelerator.plist"
GPU = Gpu(index=0, uuid="apple-gpu-0", name="Apple GPU", physical_gpu=0)


@pytest.fixture
def registry(tmp_path, put, monkeypatch) -> Path:
    """Return a fake `ioreg`, which notes its calls beside itself and answers with a file."""
    monkeypatch.setattr("tfmon.probes.other_gpus.TIMEOUT_S", PATIENCE_S)
    monkeypatch.setenv("DYLD_INSERT_LIBRARIES", "/some/library")  # the script fails if `ioreg` gets it
    (tmp_path / "answer").write_bytes(ANSWER.read_bytes())
    script = f'echo "$@" >> {tmp_path}/calls\ntest -z "$DYLD_INSERT_LIBRARIES" || exit 1\ncat {tmp_path}/answer\n'
    return put("ioreg", f"#!/bin/sh\n{script}", 0o755)


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
    clock.ahead(1)
    assert list(probe.sample()) == []
    calls = registry.with_name("calls").read_text()
    assert calls == "-a -r -d 1 -w 0 -c IOAccelerator\n", "between samples it is not run"
    device = plistlib.loads(ANSWER.read_bytes())
    for reported, busy in ((130, 100), (0, 0), (-1, 0)):
        device[0]["PerformanceStatistics"]["Device Utilization %"] = reported
        registry.with_name("answer").write_bytes(plistlib.dumps(device))
        clock.ahead(2)
        sample = take(probe)
        assert (sample.load.busy_pct, sample.every_s) == (busy, 2)


def test_program_that_is_not_there_or_does_not_answer(registry, clock, monkeypatch):
    absent = AppleProbe(GPU, program=str(registry.with_name("absent")), clock_ns=clock)
    assert take(absent).load.busy_pct == Missing("ioreg could not be run: No such file or directory")
    registry.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr("tfmon.probes.other_gpus.TIMEOUT_S", 0.05)
    silent = AppleProbe(GPU, program=str(registry), clock_ns=clock)
    assert take(silent).load.busy_pct == Missing("ioreg does not answer")

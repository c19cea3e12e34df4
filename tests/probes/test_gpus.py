"""The search for GPUs: every reason for finding none, and the facts about an interpreter's TensorFlow."""

import json
import platform
import sys
import threading

import pynvml
import pytest
from support.events import GROUPS
from support.nvml import BUSY, IDLE, TWO_GPUS
from support.waiting import PATIENCE_S, wait_for

from tfmon.model.race import Machine
from tfmon.model.readings import NOT_READ, Missing
from tfmon.probes.base import Gpu, absent_gpu
from tfmon.probes.find_gpus import GpuSearch, find_gpus, read_visibility, visible_positions, with_devices
from tfmon.probes.interpreter import Wheel, find_wheel, read_wheel

pytestmark = pytest.mark.process

DRIVER = "550.54.15"
HERE = platform.python_version()


@pytest.fixture
def site(tmp_path, put, monkeypatch):
    """Put a TensorFlow of the test's choice in front of this interpreter's import path."""

    def install(*distributions: str, cuda: bool = True, package: bool = True):
        folder, raises = tmp_path / "site", "raise AssertionError('imported')\n"
        info = f"{raises}build_info = dict([('x', 1), ('is_cuda_build', {cuda})])\n"
        put("site/tensorflow/python/platform/build_info.py", info)
        if package:
            put("site/tensorflow/__init__.py", raises)
        for name in distributions:
            (folder / f"{name}.dist-info").mkdir()
        monkeypatch.setattr(sys, "path", [str(folder)])
        return folder

    return install


@pytest.fixture
def search(driver, tmp_path, site):
    """Search on a machine with the fake driver and a TensorFlow that has CUDA."""
    site("tensorflow-2.21.0")

    def look(environ=None, **more) -> GpuSearch:
        usual = {"library": str(driver.library), "root": tmp_path, "system": "Linux", "timeout_s": PATIENCE_S}
        return find_gpus(visibility=read_visibility(environ=environ or {}, **{**usual, **more}))

    return look


class TestFound:
    def test_two_gpus_and_one_without_permission_is_omitted(self, search, driver):
        assert search() == GpuSearch(gpus=(BUSY, IDLE), driver=DRIVER)
        assert pynvml._nvmlLib_refcount == 0, "the library is closed again"
        driver.play(TWO_GPUS + "ret DeviceGetHandleByIndex 4 0\n")
        assert [(gpu.index, gpu.uuid, gpu.physical_gpu) for gpu in search().gpus] == [(0, IDLE.uuid, 1)]

    def test_visible_ones_are_counted_as_tensorflow_counts_them(self, search, driver):
        found = search({"CUDA_VISIBLE_DEVICES": "1,0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
        assert [(gpu.uuid, gpu.physical_gpu) for gpu in found.gpus] == [(IDLE.uuid, 1), (BUSY.uuid, 0)]
        assert [gpu.index for gpu in found.gpus] == [0, 1]
        assert found.note == ""
        assert [gpu.uuid for gpu in search({"CUDA_VISIBLE_DEVICES": "GPU-1d"}).gpus] == [IDLE.uuid]
        # Numbers among different models are doubtful.
        assert "fastest first" in search({"CUDA_VISIBLE_DEVICES": "1"}).note
        assert search({"CUDA_VISIBLE_DEVICES": IDLE.uuid}).note == ""
        driver.play(TWO_GPUS.replace("NVIDIA_Busy", "NVIDIA_Idle"))
        assert search({"CUDA_VISIBLE_DEVICES": "1"}).note == "", "equal models cannot be mixed up"

    def test_a_tensorflow_that_may_have_cuda_or_is_not_there_hides_none(self, search, tmp_path, monkeypatch):
        (tmp_path / "site/tensorflow/python/platform/build_info.py").unlink()
        assert len(search().gpus) == 2
        monkeypatch.setattr(sys, "path", [])  # a lane reports the missing TensorFlow
        assert len(search().gpus) == 2

    def test_a_machine_knows_its_devices_and_the_python_that_trains(self, search, driver):
        driver.play(TWO_GPUS.replace("limit 1 700000", "ret DeviceGetEnforcedPowerLimit 3 1"))
        machine = with_devices(Machine("here"), search(), Wheel("tensorflow-cpu", "2.20.0", None, "", "3.12.1"))
        assert (machine.hostname, machine.gpus) == ("here", ("NVIDIA Busy", "NVIDIA Idle"))
        assert (machine.driver, machine.power_limits_w) == (DRIVER, (700.0, None))
        assert (machine.python, machine.tensorflow) == ("3.12.1", "2.20.0 (tensorflow-cpu)")
        assert with_devices(Machine(), GpuSearch(), None) == Machine()


class TestNoGpu:
    def check(self, found: GpuSearch, reason: str, hint: str):
        assert found.gpus == ()
        assert found.reason.startswith(reason)
        assert hint in found.hint
        assert "\n" not in found.reason + found.hint

    def test_gpu_without_driver(self, search, put):
        for name, vendor, kind in (("a", "0x10de", "0x040300"), ("b", "0x1af4", "0x030000")):
            put(f"sys/bus/pci/devices/{name}/vendor", vendor + "\n")
            put(f"sys/bus/pci/devices/{name}/class", kind + "\n")
        library = "libno-such-driver.so.1"
        self.check(search(library=library), "no NVIDIA driver", "")  # a sound device, and another maker's GPU
        put("sys/bus/pci/devices/b/vendor", "0x10de\n")
        self.check(search(library=library), "there is an NVIDIA GPU, but no driver", "install the NVIDIA driver")
        put("proc/driver/nvidia/version", "NVRM\n")  # as in a container of a host with a GPU
        self.check(search(library=library), "the NVIDIA driver is loaded, but its library", "--gpus all")

    @pytest.mark.parametrize(
        ("script", "reason", "hint"),
        [
            ("ret InitWithFlags 9", "the NVIDIA driver is not loaded", "modprobe nvidia"),
            ("ret InitWithFlags 18", "the NVIDIA driver was updated while it ran", "restart the machine"),
            ("ret InitWithFlags 4", "no permission to use the NVIDIA driver", "/dev/nvidiactl"),
            ("ret InitWithFlags 999", "the driver reports an unknown error", "container"),
            ("ret DeviceGetHandleByIndex 4", "no permission to use the NVIDIA driver", "/dev/nvidia0"),
            ("ret DeviceGetHandleByIndex 15", "the GPU is lost", "dmesg"),
            ("count 0", "the NVIDIA driver lists no GPU", "--gpus all"),
        ],
    )
    def test_driver_that_gives_none(self, search, driver, script, reason, hint):
        driver.play(script + "\n" + TWO_GPUS)
        self.check(search(), reason, hint)

    @pytest.mark.parametrize("value", ["", "-1", "NoDevFiles", "7", "0,0"])
    def test_hidden(self, search, value):
        found = search({"CUDA_VISIBLE_DEVICES": value})
        self.check(found, f'hidden by CUDA_VISIBLE_DEVICES="{value}"', "GPU 0 (NVIDIA Busy)")
        part = search({"CUDA_VISIBLE_DEVICES": "MIG-1234"})
        self.check(part, 'CUDA_VISIBLE_DEVICES="MIG-1234" names no MIG instance that is there', "nvidia-smi -L")

    def test_cpu_only_tensorflow(self, search, site, tmp_path):
        (tmp_path / "site/tensorflow-2.21.0.dist-info").rmdir()
        site("tensorflow_cpu-2.21.0", cuda=False)
        found = search()
        self.check(found, "CPU-only TensorFlow (tensorflow-cpu 2.21.0)", "pip uninstall tensorflow-cpu")

    def test_driver_that_hangs(self, search, driver):
        driver.play(TWO_GPUS + "hang InitWithFlags\n")
        found = search(timeout_s=0.1)
        self.check(found, "the NVIDIA driver does not answer", "restart the machine")
        assert is_searching(), "the call that hangs is left alone, in a thread of its own"
        driver.play(TWO_GPUS)
        wait_for(lambda: not is_searching(), what="the thread to end")


def is_searching() -> bool:
    return any(thread.name == "tfmon-driver" and thread.daemon for thread in threading.enumerate())


def test_metal_is_needed_and_no_intel(search, site):
    found = search(system="Darwin", machine="arm64")
    assert (found.gpus, found.reason) == ((), "tensorflow-metal is not installed")
    assert "tensorflow-metal==1.2.0" in found.hint
    site("tensorflow_metal-1.2.0")
    assert "Intel" in search(system="Darwin", machine="x86_64").reason
    assert search(system="Windows").reason == "TensorFlow has no GPU support on Windows"
    found = search(system="Darwin", machine="arm64")
    assert [(gpu.index, gpu.name) for gpu in found.gpus] == [(0, "Apple GPU")]


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (None, [0, 1, 2]),
        ("0", [0]),
        (" 2 , 0 ", [2, 0]),
        ("0,2,-1,1", [0, 2]),
        ("1,3,0", [1]),
        ("GPU-b", [2]),
        ("GPU-aa22,GPU-bb33", [1, 2]),
        ("GPU-aa", []),  # two begin like this
        ("GPU-aa11,GPU-aa1", []),  # one named twice
        ("0,GPU-bb33", [0]),
        ("GPU-bb33,0", [2]),
    ],
)
def test_rules_of_the_variable(value, seen):
    assert visible_positions(value, ("GPU-aa11", "GPU-aa22", "GPU-bb33")) == seen


class TestWheel:
    def test_read_without_importing(self, site, monkeypatch):
        monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
        home = str(site("tensorflow-2.21.0", "tensorflow_estimator-2.15.0", "tensorflow_metal-1.2.0"))
        assert read_wheel() == Wheel("tensorflow", "2.21.0", True, "1.2.0", HERE, home=home)
        assert "tensorflow" not in sys.modules
        site("tensorflow_intel-2.15.0", cuda=False)
        assert read_wheel() == Wheel("tensorflow-intel", "2.15.0", False, "1.2.0", HERE, home=home), (
            "not the shell"
        )

    def test_first_on_the_path_wins_or_none(self, site, tmp_path, put):
        folder = site("tensorflow-2.21.0", package=False)  # left over from an uninstall
        assert read_wheel() is None
        assert find_wheel(["", str(tmp_path / "absent")]) is None
        (folder / "tensorflow/__init__.py").touch()
        other = put("other/tensorflow/__init__.py", "").parents[1]
        (other / "tensorflow_cpu-2.20.0.dist-info").mkdir()
        assert find_wheel([str(other), str(folder)]) == Wheel("tensorflow-cpu", "2.20.0", home=str(other))

    def test_a_build_for_rocm(self, site):
        folder = site("tensorflow_rocm-2.18.1", cuda=False)
        info = folder / "tensorflow/python/platform/build_info.py"
        info.write_text("build_info = dict([('is_cuda_build', False), ('is_rocm_build', True)])\n")
        assert read_wheel() == Wheel("tensorflow-rocm", "2.18.1", False, "", HERE, True, str(folder))

    def test_another_interpreter_is_asked_once(self, site, tmp_path, put):
        folder = site("tensorflow-2.18.0", cuda=False)
        answer = json.dumps({"version": [3, 12, 1], "path": [str(folder)]})
        python = put("python", f"#!/bin/sh\necho called >> {tmp_path}/calls\necho '{answer}'\n", 0o755)
        sys.path = []
        for _ in range(2):
            wheel = Wheel("tensorflow", "2.18.0", False, "", "3.12.1", home=str(folder))
            assert read_wheel(python, timeout_s=PATIENCE_S) == wheel
        assert (tmp_path / "calls").read_text() == "called\n"


def test_every_reading_of_a_gpu_that_cannot_be_read_has_the_reason():
    sample = absent_gpu(Gpu(0, "MIG-1", "part", physical_gpu=0, part_of="GPU-1"), 7, "broken")
    assert (sample.key, sample.name, sample.at_ns) == ("MIG-1", "part", 7)
    assert sample.part_of == "GPU-1"
    readings = {name: getattr(sample, name) for name in sample.__slots__}
    readings |= {name: getattr(readings[group], name) for name, group in GROUPS.items()}
    missing = {name for name, value in readings.items() if value == Missing("broken")}
    assert {"busy_pct", "energy_j", "reasons", "busy_by_pid", "ecc_errors"} <= missing
    assert NOT_READ not in readings.values()

"""Checks of the system, the build and the driver that a GPU needs, each with the fault and without."""

from dataclasses import replace

import pytest

from tfmon.doctor.checks import BROKEN, NOT_APPLICABLE, OK, WARNING
from tfmon.doctor.diagnosis import Diagnosis
from tfmon.doctor.facts import Platform
from tfmon.probes.base import Gpu
from tfmon.probes.find_gpus import GpuVisibility
from tfmon.probes.interpreter import Wheel

from .bench import H200, find, with_gpu

LINUX = Platform()
RTX5090 = replace(H200, index=1, uuid="GPU-bb", name="NVIDIA GeForce RTX 5090", capability=(12, 0))
K80 = replace(H200, uuid="GPU-cc", name="Tesla K80", capability=(3, 7))


@pytest.fixture
def server(bench):
    """Facts of a machine with a GPU and nothing wrong."""
    return with_gpu(bench.facts(platform=LINUX))


@pytest.fixture
def mac(bench):
    """Facts of an Apple Silicon Mac with tensorflow-metal."""
    facts = bench.facts(platform=Platform("Darwin", "arm64"), visibility=GpuVisibility("Darwin", "arm64"))
    python = replace(facts.python, version=(3, 12, 4), machine="arm64")
    return replace(facts, python=python, wheel=Wheel("tensorflow", "2.18.1", None, "1.2.0"))


SERVER = ("gpu-build", "driver", "driver-version", "visible-devices",
          "compute-capability", "compute-mode", "cuda-driver-library", "cuda-libraries", "cudnn",
          "library-path")  # fmt: skip


def test_nothing_is_wrong_with_a_server(server, mac):
    for id in SERVER:
        finding = find(id, server)
        assert (finding.status, finding.fix) == (OK, ""), finding
    assert Diagnosis(server).no_gpu is None
    assert {find(id, mac).status for id in ("driver", "visible-devices", "gpu-build")} == {NOT_APPLICABLE}
    assert find("metal", server).status == NOT_APPLICABLE


class TestSupport:
    def test_cpu_only_wheel_and_others(self, bench):
        elsewhere = Diagnosis(bench.facts(visibility=GpuVisibility("FreeBSD", "x86_64"))).no_gpu
        assert elsewhere is not None and "FreeBSD" in elsewhere.reason
        (bench.site / "tensorflow/python/platform/build_info.py").unlink()
        assert bench.find("gpu-build").status == WARNING
        bench.remove("tensorflow")
        bench.tensorflow("2.21.0", "tensorflow-cpu", cuda=False)
        finding = bench.find("gpu-build", platform=LINUX)
        assert (finding.status, finding.found) == (BROKEN, "CPU-only TensorFlow (tensorflow-cpu 2.21.0)")
        assert "-m pip uninstall -y tensorflow-cpu tensorflow" in finding.fix
        assert "'tensorflow[and-cuda]'" in finding.fix

    @pytest.mark.parametrize(
        ("version", "metal", "python", "status", "fix"),
        [
            ("2.18.1", "1.2.0", (3, 12, 1), OK, ""),
            ("2.20.0", "1.2.0", (3, 12, 1), BROKEN, "'tensorflow>=2.18,<2.20' tensorflow-metal==1.2.0"),
            ("2.16.2", "1.2.0", (3, 12, 1), BROKEN, "'tensorflow>=2.18,<2.20' tensorflow-metal==1.2.0"),
            ("2.18.1", "1.1.0", (3, 11, 1), BROKEN, "tensorflow-metal==1.2.0"),
            ("2.18.1", "", (3, 12, 1), BROKEN, "tensorflow-metal==1.2.0"),
            ("2.18.1", "1.2.0", (3, 13, 0), BROKEN, "uv venv --python 3.12"),
        ],
    )
    def test_metal(self, mac, version, metal, python, status, fix):
        wheel = Wheel("tensorflow", version, None, metal)
        finding = find("metal", replace(mac, wheel=wheel, python=replace(mac.python, version=python)))
        assert (finding.status, fix in finding.fix) == (status, True), finding


class TestDriver:
    def test_absent_without_and_beside_a_gpu_and_in_a_container_on_a_host_that_has_it(self, bench):
        bench.write("etc/os-release", 'NAME="Ubuntu"\nID=ubuntu\n')
        finding = bench.find("driver")
        assert (finding.status, finding.found) == (BROKEN, "no NVIDIA driver (libnvidia-ml.so.1 was not found)")
        assert finding.fix.startswith(
            "if this machine has an NVIDIA GPU: install the NVIDIA driver: sudo ubuntu-dr"
        )
        bench.write("sys/bus/pci/devices/a/vendor", "0x10de\n")
        bench.write("sys/bus/pci/devices/a/class", "0x030000\n")
        finding = bench.find("driver")
        assert finding.found == "there is an NVIDIA GPU, but no driver for it"
        assert finding.fix.startswith("install the NVIDIA driver")
        bench.write("proc/version", "5.15.90.1-microsoft-standard-WSL2")
        assert "in Windows, none in WSL" in bench.find("driver").fix
        bench.write("proc/version", "")
        bench.write(".dockerenv", "")
        bench.write(
            "proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue\n"
        )
        finding = bench.find("driver")
        assert finding.found.startswith("the NVIDIA driver is loaded, but its library")
        assert finding.fix.startswith("docker run --gpus all")
        assert "kernel module: 550.54.15" in finding.evidence

    def test_files_that_are_missing_or_may_not_be_opened(self, bench, server):
        for name in ("nvidia0", "nvidiactl"):
            bench.write(f"dev/{name}", "")
        assert bench.find("driver-files", platform=LINUX).fix == "sudo nvidia-modprobe -u -c 0"
        bench.write("dev/nvidia-uvm", "")
        bench.write("dev/nvidia-caps", "")
        assert bench.find("driver-files").status == OK
        assert bench.facts().visibility.nodes == ("/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl")
        nodes = ("/dev/nvidia0", "/dev/nvidiactl")
        visibility = replace(server.visibility, nodes=nodes, denied=nodes[:1])
        finding = find("driver-files", replace(server, visibility=visibility))
        assert (finding.status, "/dev/nvidia0" in finding.fix) == (BROKEN, True)


@pytest.mark.parametrize("value", ["", "-1", "7", "MIG-12"])
def test_a_variable_hides_every_gpu_or_one_of_two(server, value):
    hidden = with_gpu(server, visible=value)
    finding = find("visible-devices", hidden)
    assert (finding.status, "CUDA_VISIBLE_DEVICES" in finding.fix) == (BROKEN, True)
    reason = Diagnosis(hidden).no_gpu
    assert reason is not None and reason.reason == finding.found, "the screen says the same"
    finding = find("visible-devices", with_gpu(server, H200, RTX5090, visible="GPU-bb"))
    assert (finding.status, finding.found) == (OK, "1 of 2: NVIDIA GeForce RTX 5090")
    finding = find("visible-devices", with_gpu(server, H200, RTX5090, visible="1"))
    assert (finding.status, finding.fix) == (WARNING, "export CUDA_DEVICE_ORDER=PCI_BUS_ID")


class TestCapability:
    def test_says_which(self, server):
        finding = find("compute-capability", with_gpu(server, H200, RTX5090))
        assert "RTX 5090 has compute capability 12.0" in finding.found
        assert "container" in finding.fix and "CUDA_ERROR_INVALID_PTX" in finding.evidence[0]
        compiled = with_gpu(replace(server, wheel=replace(server.wheel, capabilities=("compute_80",))), H200)
        assert "CUDA_CACHE_MAXSIZE" in find("compute-capability", compiled).fix
        assert "older TensorFlow" in find("compute-capability", with_gpu(server, K80)).fix
        newer = replace(server.wheel, capabilities=("sm_86", "compute_90"))
        older_gpu = with_gpu(replace(server, wheel=newer), replace(H200, capability=(8, 0)))
        assert find("compute-capability", older_gpu).status == BROKEN, "code for 8.6 does not run on 8.0"
        assert find("compute-capability", with_gpu(server, K80, H200, visible="GPU-aa")).status == OK

    def test_instances_are_listed_as_lanes_are_given_them(self, server):
        one, two = "MIG-12345678-1111-2222-3333-444444444444", "MIG-87654321-1111-2222-3333-444444444444"
        parts = ((one, "NVIDIA H200 MIG 1g.18gb"), (two, "NVIDIA H200 MIG 3g.71gb"))
        split = replace(H200, instances=tuple(Gpu(0, uuid, name, 0, part_of="GPU-aa") for uuid, name in parts))
        finding = find("compute-mode", with_gpu(server, split))
        listed = "--lane MIG-12345678 (NVIDIA H200 MIG 1g.18gb), --lane MIG-87654321 (NVIDIA H200 MIG 3g.71gb)"
        assert (finding.status, finding.found.endswith(listed)) == (OK, True)
        assert finding.evidence[1] == f"{two} NVIDIA H200 MIG 3g.71gb"


@pytest.mark.process
def test_the_screen_and_the_doctor_give_the_same_reason(bench, driver):
    bench.more["library"] = str(driver.library)
    facts = bench.facts()
    busy, idle = facts.visibility.physical_gpus
    assert (busy.name, idle.name, facts.visibility.driver) == ("NVIDIA Busy", "NVIDIA Idle", "550.54.15")
    assert busy.power_limit_w == 700
    assert {sample.key: sample.load.busy_pct for sample in facts.samples}[busy.uuid] == 87
    assert idle.capability is None, "unknown is not 0"
    assert facts.obstacle is None
    assert find("driver", facts).status == OK
    assert find("gpu-free", facts).status == WARNING
    bench.tensorflow(cuda=False)
    facts = bench.facts()
    assert Diagnosis(facts).no_gpu.reason == find("gpu-build", facts).found


def test_a_reason_that_only_the_checks_know(server):
    lacking = tuple(
        replace(library, error="no such file") if "cudnn" in library.name else library
        for library in server.libraries
    )
    broken = replace(server, libraries=lacking)
    assert broken.obstacle is None
    assert Diagnosis(broken).no_gpu.reason == "CUDA libraries: libcudnn.so.9 cannot be opened"

"""AMD GPUs from fake trees of /sys: how they are found and hidden, and their readings."""

import sys
from collections.abc import Callable

import pytest

from tfmon.model.gpu_samples import GpuSample
from tfmon.model.readings import Missing
from tfmon.probes.base import Gpu
from tfmon.probes.find_gpus import GpuSearch, choose_gpu_probe, conclude, read_visibility
from tfmon.probes.interpreter import Wheel
from tfmon.probes.other_gpus import AmdProbe

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /sys")

FIRST = Gpu(0, "AMD-8fa5d41e0b2c7301", "AMD Instinct MI210", physical_gpu=0)
ROCM = Wheel("tensorflow-rocm", "2.18.1", False, "", rocm=True)
CPU_ONLY = Wheel("tensorflow-cpu", "2.21.0", False, "")


@pytest.fixture
def root(tmp_path, put: Callable[[str, str], object]):
    """A machine with a processor, a server's GPU and a desktop's GPU, as Linux 6.8 shows them."""
    nodes = "sys/class/kfd/kfd/topology/nodes"
    put(f"{nodes}/0/properties", "cpu_cores_count 64\nsimd_count 0\nvendor_id 0\nlocation_id 0\n")
    put(
        f"{nodes}/1/properties",
        "cpu_cores_count 0\nsimd_count 416\nvendor_id 4098\nlocation_id 9984\ndomain 0\ndrm_render_minor 128\n"
        "unique_id 10350912544082522881\ngfx_target_version 90010\n",
    )
    put(
        f"{nodes}/10/properties",
        "simd_count 192\nvendor_id 4098\nlocation_id 17152\ndomain 0\ndrm_render_minor 129\nunique_id 0\n"
        "gfx_target_version 110000\n",
    )
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


@pytest.mark.parametrize("name", ["HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"])
def test_none_is_found_where_a_variable_may_hide_some(search, name):
    found = search(**{name: "1"})
    assert (found.gpus, name in found.reason, found.hint.partition(";")[0]) == ((), True, f"unset {name}")


def test_a_tensorflow_without_rocm_beside_an_nvidia_gpu_or_not(search, put):
    found = search(CPU_ONLY)
    assert found.gpus == ()
    assert "an AMD GPU, but this TensorFlow (tensorflow-cpu) is not built for ROCm" in found.reason
    assert len(search(None).gpus) == 2, "a lane reports a TensorFlow that is not installed"
    put("sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n")
    put("sys/bus/pci/devices/0000:01:00.0/class", "0x030000\n")
    assert search(CPU_ONLY).reason.startswith("there is an NVIDIA GPU, but no driver")
    assert len(search(ROCM).gpus) == 2, "this TensorFlow is for the other GPU"


def test_readings_of_a_gpu_that_sleeps_and_says_nonsense(root):
    assert isinstance(choose_gpu_probe([FIRST]), AmdProbe)
    # Reading a folder fails, as a file of a sleeping GPU does.
    (root / "sys/class/drm/renderD128/device/mem_info_vram_used").mkdir()
    (sample,) = (one for one in AmdProbe([FIRST], root=root).sample() if isinstance(one, GpuSample))
    assert (sample.memory.total_bytes, sample.power.power_w, sample.temperature_c) == (68702699520, 212, 61.5)
    assert isinstance(sample.load.busy_pct, Missing) and isinstance(sample.memory.used_bytes, Missing)
    assert sample.memory.used_bytes.reason.startswith("the kernel does not report it now: ")

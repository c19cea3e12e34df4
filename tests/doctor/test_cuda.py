"""Checks of the CUDA libraries, with libraries that are really opened."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tfmon.doctor.checks import BROKEN, NOT_APPLICABLE, OK, WARNING
from tfmon.doctor.facts import Platform

from .bench import build_library, find, with_gpu

pytestmark = pytest.mark.process
SONAMES = (
    "libcudart.so.12", "libcublas.so.12", "libcublasLt.so.12", "libcufft.so.11", "libcusolver.so.11",
    "libcusparse.so.12", "libcudnn.so.9",
)  # fmt: skip
CUDNN = "unsigned long cudnnGetVersion(void) { return %d; }"


@pytest.fixture(scope="session")
def built(tmp_path_factory) -> Path:
    """Every CUDA library in a separate package."""
    folder = tmp_path_factory.mktemp("toolkit")
    for name in SONAMES:
        code = CUDNN % 90300 if "cudnn" in name else "int x;"
        build_library(folder / "nvidia" / name.split(".")[0] / "lib" / name, code)
    return folder


@pytest.fixture
def toolkit(bench, built, bare_python):
    """Return a machine with a driver, and every CUDA library beside TensorFlow, as pip installs them."""
    bench.python = bare_python
    bench.write("proc/driver/nvidia/version", "NVRM\n")
    shutil.copytree(built, bench.site, dirs_exist_ok=True)
    return bench


def library(bench, name: str) -> Path:
    return bench.site / "nvidia" / name.split(".")[0] / "lib" / name


def test_all_are_opened_where_tensorflow_would_find_them_and_missing_and_broken_ones_are_reported(toolkit):
    facts = toolkit.facts()
    finding = find("cuda-libraries", facts)
    assert (finding.status, finding.found) == (OK, "all 7 open, from the packages")
    assert find("cudnn", facts).found == "9.3.0"
    assert {one.name for one in facts.libraries} == {"libcuda.so.1", *SONAMES}
    assert find("library-path", facts).status == OK
    name = "libcufft.so.11"
    library(toolkit, name).unlink()
    finding = toolkit.find("cuda-libraries", platform=Platform())
    assert finding.status == BROKEN
    assert finding.found == f"{name} cannot be opened"
    assert finding.fix.endswith(f"{toolkit.python} -m pip install 'tensorflow[and-cuda]==2.21.0'")
    assert any(line.startswith(f"{name}: ") and "cannot open" in line for line in finding.evidence)
    library(toolkit, "libcublas.so.12").write_bytes(b"no library")
    facts = toolkit.facts()
    assert find("cuda-libraries", facts).found == f"libcublas.so.12, {name} cannot be opened"
    conda = replace(facts, python=replace(facts.python, conda=True), wheel=replace(facts.wheel, installer="conda"))
    assert "-c conda-forge 'tensorflow=*=cuda*'" in find("cuda-libraries", conda).fix


@pytest.mark.parametrize(
    ("version", "status"),
    [("9.3.0", OK), ("9.10.2", OK), ("9.1.0", BROKEN), ("8.9.7", BROKEN), ("10.0.0", BROKEN)],
)
def test_cudnn_of_another_version(bench, version, status):
    facts = with_gpu(bench.facts())
    libraries = [replace(one, version=version) if "cudnn" in one.name else one for one in facts.libraries]
    finding = find("cudnn", replace(facts, libraries=tuple(libraries)))
    assert finding.status == status, finding
    if status == BROKEN:
        assert "'nvidia-cudnn-cu12<10.0,>=9.3.0.75'" in finding.fix


def test_driver_library(toolkit, tmp_path):
    file = tmp_path / "driver" / "libcuda.so.1"
    file.parent.mkdir()
    file.write_text("no library")  # also where the machine has a real one
    toolkit.environ["LD_LIBRARY_PATH"] = str(file.parent)
    finding = toolkit.find("cuda-driver-library", platform=Platform(container="docker"))
    assert (finding.status, "NVIDIA_DRIVER_CAPABILITIES" in finding.fix) == (BROKEN, True)
    file.unlink()
    build_library(file)
    assert toolkit.find("cuda-driver-library").status == OK


def test_files_that_xla_needs_to_compile_a_step(bench, put):
    bench.write("proc/driver/nvidia/version", "NVRM\n")
    bench.environ["PATH"] = ""
    bench.tensorflow(requires=('nvidia-cuda-nvcc-cu12<13.0,>=12.5.82; extra == "and-cuda"',))
    finding = bench.find("xla-files", platform=Platform())
    assert (finding.status, "libdevice.10.bc and ptxas not found" in finding.found) == (WARNING, True)
    assert finding.fix.endswith("pip install 'nvidia-cuda-nvcc-cu12<13.0,>=12.5.82'")
    assert f"searched: {bench.site}/nvidia/cuda_nvcc" in finding.evidence

    libdevice = "nvvm/libdevice/libdevice.10.bc"
    put(f"site/nvidia/cuda_nvcc/{libdevice}", "")
    finding = bench.find("xla-files")
    assert (finding.status, finding.found.startswith("ptxas not found")) == (WARNING, True)
    put("site/nvidia/cuda_nvcc/bin/ptxas", "", 0o755)
    finding = bench.find("xla-files")
    assert finding.status == OK
    assert finding.evidence == tuple(f"{bench.site}/nvidia/cuda_nvcc/{name}" for name in (libdevice, "bin/ptxas"))

    chosen = put(f"root/opt/cuda/{libdevice}", "")
    bench.environ["XLA_FLAGS"] = f"--xla_dump_to=/tmp --xla_gpu_cuda_data_dir={bench.root}/opt/cuda"
    assert bench.find("xla-files").evidence[0] == str(chosen), "the folder that XLA_FLAGS names comes first"


def test_packages_that_another_framework_changed(bench):
    assert bench.facts().libraries is None, "nothing is opened without a sign of a GPU"
    ids = ("cuda-packages", "cuda-libraries", "cuda-driver-library", "xla-files", "cudnn")
    assert {bench.find(id).status for id in ids} == {NOT_APPLICABLE}
    bench.write("proc/driver/nvidia/version", "NVRM\n")
    bench.tensorflow(cuda=False)
    assert bench.facts().libraries is None, "nor without CUDA"
    bench.tensorflow()
    bench.install("nvidia-cudnn-cu12", "9.10.2.21")
    bench.install("nvidia-cublas-cu12", "12.8.4.1")
    assert bench.find("cuda-packages").status == OK
    bench.replace("nvidia-cudnn-cu12", "9.1.0.70")
    finding = bench.find("cuda-packages")
    assert (finding.status, "9.1.0.70 is not <10.0,>=9.3.0.75" in finding.found) == (WARNING, True)
    bench.install("torch", "2.9.0")
    finding = bench.find("cuda-packages")
    assert ("torch is installed here" in finding.found, "environment of its own" in finding.fix) == (True, True)

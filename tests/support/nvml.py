"""A scripted NVIDIA driver: `fakenvml.c`, compiled once, behind the real pynvml."""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pynvml
import pytest

from support.waiting import HANGS_S
from tfmon.model.gpu_samples import GpuSample
from tfmon.probes.base import Gpu
from tfmon.probes.nvidia.probe import NvidiaProbe

SOURCE = Path(__file__).parents[1] / "probes" / "fakenvml.c"

TWO_GPUS = """\
count 2
name 0 NVIDIA_Busy
uuid 0 GPU-b0000000-1111-2222-3333-444444444444
util 0 87 41
mem 0 80000000000 500000000 40500000000 39000000000
power 0 412345
limit 0 700000
temp 0 61
proc 0 4242 38000000000
name 1 NVIDIA_Idle
uuid 1 GPU-1d1e0000-1111-2222-3333-444444444444
util 1 0 0
mem 1 80000000000 500000000 79500000000 0
power 1 61000
limit 1 700000
temp 1 34
"""
"""Two GPUs, the first one busy. They have no utilisation samples and no energy counter."""

BUSY = Gpu(0, "GPU-b0000000-1111-2222-3333-444444444444", "NVIDIA Busy", physical_gpu=0, power_limit_w=700)
IDLE = Gpu(1, "GPU-1d1e0000-1111-2222-3333-444444444444", "NVIDIA Idle", physical_gpu=1, power_limit_w=700)


def take(probe: NvidiaProbe) -> list[GpuSample]:
    return [sample for sample in probe.sample() if isinstance(sample, GpuSample)]


class FakeDriver:
    def __init__(self, library: Path, script: Path) -> None:
        self.library = library
        self._script = script

    def play(self, text: str) -> None:
        """Answer by this script from now on."""
        fresh = self._script.with_suffix(".new")
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(self._script)


@pytest.fixture(scope="session")
def build_fake_nvml(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compile the fake library, with or without some of its functions; each variant once."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    built: dict[tuple[str, ...], Path] = {}

    def build(*flags: str) -> Path:
        if compiler is None:
            pytest.skip("no C compiler to build the fake NVIDIA library with")
        if flags not in built:
            library = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
            soname = ["-Wl,-soname,libnvidia-ml.so.1"] if os.uname().sysname == "Linux" else []
            command = [compiler, "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", *soname, *flags]
            subprocess.run([*command, "-o", str(library), str(SOURCE)], check=True, timeout=HANGS_S)
            built[flags] = library
        return built[flags]

    return build


@pytest.fixture
def load_driver(
    build_fake_nvml: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., FakeDriver]]:
    """Put the fake library, built with the given flags, behind the real pynvml for this test."""

    def load(*flags: str) -> FakeDriver:
        library = build_fake_nvml(*flags)
        script = tmp_path / "script.txt"
        monkeypatch.setenv("FAKE_NVML_SCRIPT", str(script))
        monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(library)))
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        monkeypatch.setattr(pynvml, "_nvmlLib_refcount", 0)
        driver = FakeDriver(library, script)
        driver.play(TWO_GPUS)
        return driver

    yield load
    while pynvml._nvmlLib_refcount > 0:  # the library stays loaded, so it must be left as it was found
        pynvml.nvmlShutdown()


@pytest.fixture
def driver(load_driver: Callable[..., FakeDriver]) -> FakeDriver:
    return load_driver()

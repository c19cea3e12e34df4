"""A faked environment on a faked machine, and the findings of the checks there."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from support.events import reread
from support.waiting import PATIENCE_S

from tfmon.doctor.checks import Finding
from tfmon.doctor.diagnosis import CHECKS
from tfmon.doctor.facts import Facts, HostFacts, gather_facts
from tfmon.model.gpu_samples import GpuSample
from tfmon.model.readings import NOT_READ, HostSample
from tfmon.probes.base import Gpu, absent_gpu
from tfmon.probes.cuda import DRIVER, Library, open_libraries, wanted_libraries
from tfmon.probes.host_probe import unknown_host
from tfmon.probes.interpreter import Interpreter, describe_interpreter

REQUIRES = (
    "keras>=3.12.0",
    "numpy>=1.26.0",
    "protobuf<8.0.0,>=6.31.1",
    'nvidia-cudnn-cu12<10.0,>=9.3.0.75; extra == "and-cuda"',
    'nvidia-cublas-cu12<13.0,>=12.5.3.2; extra == "and-cuda"',
)
H200 = Gpu(
    index=0, uuid="GPU-aa", name="NVIDIA H200", physical_gpu=0, power_limit_w=700.0, power_default_w=700.0,
    capability=(9, 0), exclusive=False,
)  # fmt: skip


def load(cores: float, stolen_cores: float = 0.0) -> tuple[HostSample, ...]:
    """Return the samples of a machine with this load of others."""
    sample = unknown_host(0, NOT_READ)
    return (replace(sample, others_cpu_pct=100 * cores, steal_pct=100 * stolen_cores),)


QUIET = HostFacts(
    cores=8, usable_cores=8, total_bytes=32 * 1024**3, available_bytes=16 * 1024**3, samples=load(0.0)
)
BARE = Interpreter(
    "/bare/bin/python", version=sys.version_info[:3], machine=platform.machine(), prefix="/bare",
    path=("/usr/lib/python3",), pip=False, libc="glibc 2.36",
)  # fmt: skip
"""An interpreter without packages, as it would describe itself."""


class Bench:
    def __init__(self, folder: Path) -> None:
        self.python = Path(BARE.executable)
        self.root, self.site, self.cwd = folder / "root", folder / "site", folder / "cwd"
        for one in (self.root, self.site, self.cwd):
            one.mkdir()
        self.environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(self.site)}
        self.more: dict[str, str] = {"library": "libno-such-driver.so.1"}
        self.write("proc/cpuinfo", "processor : 0\nflags : fpu sse4_2 avx avx2 fma\n")
        self.write("proc/meminfo", f"MemTotal: {24_000 * 1024} kB\nMemAvailable: {16_000 * 1024} kB\n")
        for name, version in (("keras", "3.15.1"), ("numpy", "2.4.6"), ("protobuf", "7.36.2")):
            self.install(name, version)
        self.tensorflow()

    def write(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def install(self, name: str, version: str, *lines: str, site: Path | None = None) -> Path:
        folder = (site or self.site) / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir(parents=True)
        folder.joinpath("METADATA").write_text(
            "\n".join(("Metadata-Version: 2.4", *lines)) + "\n\nRequires-Dist: x\n"
        )
        folder.joinpath("INSTALLER").write_text("pip\n")
        return folder

    def remove(self, name: str) -> None:
        for folder in self.site.glob(f"{name.replace('-', '_')}-*.dist-info"):
            shutil.rmtree(folder)

    def replace(self, name: str, version: str) -> None:
        self.remove(name)
        self.install(name, version)

    def tensorflow(
        self,
        version: str = "2.21.0",
        name: str = "tensorflow",
        *,
        cuda: bool = True,
        requires: Iterable[str] = REQUIRES,
        python: str = ">=3.9",
    ) -> None:
        """Install a TensorFlow in place of the one there; importing it would raise."""
        self.remove("tensorflow")
        folder = self.site / "tensorflow/python/platform"
        folder.mkdir(parents=True, exist_ok=True)
        (self.site / "tensorflow/__init__.py").write_text("raise AssertionError('imported')\n")
        capabilities = ["sm_60", "sm_70", "sm_80", "sm_89", "compute_90"]
        facts = [("cuda_compute_capabilities", capabilities), ("cuda_version", "12.5.1")]
        facts = [*facts, ("cudnn_version", "9")] if cuda else []
        info = f"import collections\nbuild_info = collections.OrderedDict({[*facts, ('is_cuda_build', cuda)]})\n"
        (folder / "build_info.py").write_text(info)
        lines = [f"Requires-Python: {python}", *(f"Requires-Dist: {require}" for require in requires)]
        self.install(name, version, *lines)

    def describe(self, python: str | Path, *, environ: Mapping[str, str]) -> Interpreter:
        """Describe an interpreter, `BARE` without starting it."""
        if str(python) != BARE.executable:
            return describe_interpreter(python, environ=environ, timeout_s=PATIENCE_S)
        return replace(BARE, path=(*environ["PYTHONPATH"].split(":"), *BARE.path))

    def open(self, python: str, *details: object, environ: Mapping[str, str]) -> tuple[Library, ...]:
        """Open the libraries of TensorFlow. `BARE` cannot be started and has none."""
        if python == BARE.executable:
            return ()
        return open_libraries(python, *details, environ=environ, timeout_s=PATIENCE_S)

    def facts(self, **changes: object) -> Facts:
        """Gather the facts of this environment and machine without an import of TensorFlow."""
        places = {"root": self.root, "folder": self.cwd, "environ": self.environ, **self.more}
        return replace(gather_facts(self.python, imports=False, **places), **changes)

    def find(self, id: str, **changes: object) -> Finding:
        return find(id, self.facts(**changes))


def find(id: str, facts: Facts) -> Finding:
    return next(check for check in CHECKS if check.id == id).judge(facts)


def sample_of(gpu: Gpu, **readings: object) -> GpuSample:
    """Return the sample of a GPU that nobody uses, or with other readings."""
    idle = {"busy_pct": 0.0, "used_bytes": 5e8, "total_bytes": 1.5e11, "reasons": (), "temperature_c": 34.0}
    return reread(absent_gpu(gpu, 1, "not read"), no_list_reason="", **{**idle, **readings})


def with_gpu(
    facts: Facts,
    *gpus: Gpu,
    visible: str | None = None,
    version: str = "550.54.15",
    samples: tuple[GpuSample, ...] | None = None,
) -> Facts:
    """Return facts with GPUs, their driver and every library that TensorFlow opens."""
    gpus = gpus or (H200,)
    visibility = replace(facts.visibility, physical_gpus=gpus, failure=None, visible=visible, driver=version)
    visibility = replace(visibility, module_version="550.54.15", nodes=(), denied=())
    folder = "/usr/lib/x86_64-linux-gnu"
    libraries = tuple(
        Library(name, path=f"{folder}/{name}", version="9.3.0" if "cudnn" in name else "")
        for name in (DRIVER, *wanted_libraries(facts.build))
    )
    read = tuple(map(sample_of, gpus)) if samples is None else samples
    return replace(facts, visibility=visibility, samples=read, libraries=libraries)


def build_library(file: Path, code: str = "int nothing;") -> None:
    """Compile a shared library of that name, or skip the test without a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to build a library with")
    file.parent.mkdir(parents=True, exist_ok=True)
    command = [compiler, "-shared", "-fPIC", f"-Wl,-soname,{file.name}", "-o", str(file), "-x", "c", "-"]
    subprocess.run(command, input=code, text=True, check=True)

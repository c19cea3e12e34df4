"""Files of CUDA: TensorFlow's libraries, and XLA's.

Source: `TryDlopenCUDALibraries` in
https://github.com/openxla/xla/blob/main/xla/tsl/platform/default/dso_loader.cc, with the versions of
https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tfmon.model.fast_dataclass import dataclass
from tfmon.probes.interpreter import NO_CWD, Wheel
from tfmon.system.programs import run_program

DRIVER = "libcuda.so.1"
_VERSIONS = {
    "12": {"cudart": "12", "cublas": "12", "cublasLt": "12", "cufft": "11", "cusolver": "11", "cusparse": "12"},
    "13": {"cudart": "13", "cublas": "13", "cublasLt": "13", "cufft": "12", "cusolver": "12", "cusparse": "12"},
}

_OPEN = (
    NO_CWD
    + r"""
import ctypes, json, os
def version(handle, name):
    if "cudnn" not in name:
        return ""
    handle.cudnnGetVersion.restype = ctypes.c_size_t
    number = handle.cudnnGetVersion()
    scale = 10000 if number >= 90000 else 1000
    return "%d.%d.%d" % (number // scale, number % scale // 100, number % 100)
def place(name):
    try:
        with open("/proc/self/maps") as maps:
            lines = [line.split(None, 5)[5].strip() for line in maps if "/" + name.split(".so")[0] + ".so" in line]
        return lines[0] if lines else ""
    except OSError:
        return ""
found = []
for name, file in json.loads(sys.argv[1]):
    entry = {"name": name, "error": "", "path": file if "/" in file else "", "version": ""}
    try:
        handle = ctypes.CDLL(file)
        entry["path"] = place(name) or entry["path"]
        entry["version"] = version(handle, name)
    except (OSError, AttributeError) as error:
        entry["error"] = str(error)
    found.append(entry)
print(json.dumps(found))
"""
)


@dataclass(frozen=True, slots=True)
class Library:
    """A shared library for GPUs."""

    name: str
    error: str = ""
    path: str = ""
    version: str = ""
    """Only read for cuDNN."""
    wheel: bool = False


@dataclass(frozen=True, slots=True)
class XlaFiles:
    """Files that XLA needs for a GPU."""

    libdevice: str = ""
    ptxas: str = ""
    searched: tuple[str, ...] = ()


def wanted_libraries(wheel: Wheel) -> tuple[str, ...]:
    """Return the libraries that a TensorFlow opens."""
    cuda, cudnn = (text.partition(".")[0] for text in (wheel.cuda_version, wheel.cudnn_version))
    names = tuple(f"lib{name}.so.{version}" for name, version in _VERSIONS.get(cuda, {}).items())
    return (*names, f"libcudnn.so.{cudnn}") if names and cudnn else names


def open_libraries(
    python: str | Path, wheel: Wheel, *, environ: Mapping[str, str], timeout_s: float = 20.0
) -> tuple[Library, ...]:
    """Open libcuda and the libraries of a TensorFlow, in a process of its interpreter.

    The search order is the dynamic linker's. Source: https://man7.org/linux/man-pages/man8/ld.so.8.html.
    """
    home = Path(wheel.home)
    first = [Path(folder) for folder in environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    folders = [*first, *sorted(home.glob("nvidia/*/lib"))]

    def file(name: str) -> str:
        return next((str(folder / name) for folder in folders if (folder / name).exists()), name)

    files = [(DRIVER, DRIVER), *((name, file(name)) for name in wanted_libraries(wheel))]
    try:
        answer = run_program([str(python), "-c", _OPEN, json.dumps(files)], timeout_s, environ=environ)
        opened = json.loads(answer.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return (Library(DRIVER, error=f"opening the libraries took longer than {timeout_s:g} s"),)
    except (OSError, ValueError, LookupError):
        return (Library(DRIVER, error="the process that opened the libraries failed"),)
    inside = f"{home}/nvidia/", f"{home.resolve()}/nvidia/"
    return tuple(Library(**entry, wheel=entry["path"].startswith(inside)) for entry in opened)


def find_xla_files(home: str, folder: Path, environ: Mapping[str, str], root: Path) -> XlaFiles:
    """Return the files of CUDA that XLA finds when it compiles a step.

    Args:
        home: Folder that contains the package `tensorflow`.
        folder: Working folder of the training.

    Source: `GetLibdeviceDir` in xla/service/gpu/llvm_gpu_backend, `FindCudaExecutable` in
    xla/stream_executor/cuda/subprocess_compilation.cc, and `CandidateCudaRoots` in tsl/platform/cuda_root_path.h.
    """
    site = Path(home)
    chosen = re.findall(r"--xla_gpu_cuda_data_dir=(\S+)", environ.get("XLA_FLAGS", ""))
    folders = [
        *(folder / path for path in chosen),
        folder / "cuda_sdk_lib",
        root / "usr/local/cuda",
        site / "nvidia/cuda_nvcc",
        site / "tensorflow/cuda",
        folder,
    ]
    libraries = [path / "nvvm/libdevice/libdevice.10.bc" for path in folders]
    libdevice = next((path for path in (*libraries, folder / "libdevice.10.bc") if path.is_file()), None)
    programs = [os.fspath(path / "bin") for path in folders]
    search_path = os.pathsep.join([*programs[: len(chosen)], environ.get("PATH", ""), *programs])
    ptxas = shutil.which("ptxas", path=search_path)
    return XlaFiles(str(libdevice or ""), ptxas or "", tuple(map(str, folders)))

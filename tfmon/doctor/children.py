"""Checks in a child of the examined interpreter: open the CUDA libraries, import TensorFlow.

Source: the libraries that TensorFlow opens before it registers GPUs (`TryDlopenCUDALibraries` in
https://github.com/openxla/xla/blob/main/xla/tsl/platform/default/dso_loader.cc), with the versions of
https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tfmon.doctor.facts import Import, Library
from tfmon.model.codec import clean
from tfmon.probes.interpreter import NO_CWD, Build, run_script

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


_MARK = "tfmon-doctor:"
_LONGEST = 60_000
_IMPORT = (
    NO_CWD
    + f"""
import json
import tensorflow as tf
found = {{
    "version": tf.__version__,
    "path": tf.__file__ or "",
    "gpus": [one.name for one in tf.config.list_physical_devices("GPU")],
    "cuda": bool(tf.test.is_built_with_cuda()),
}}
print({_MARK!r} + json.dumps(found), flush=True)
"""
)


def wanted_libraries(build: Build) -> tuple[str, ...]:
    """Return the names of the libraries that a TensorFlow opens, or empty for an unknown CUDA version."""
    cuda, cudnn = (text.partition(".")[0] for text in (build.cuda_version, build.cudnn_version))
    names = tuple(f"lib{name}.so.{version}" for name, version in _VERSIONS.get(cuda, {}).items())
    return (*names, f"libcudnn.so.{cudnn}") if names and cudnn else names


def open_libraries(
    python: str | Path, home: str | Path, build: Build, *, environ: Mapping[str, str], timeout_s: float = 20.0
) -> tuple[Library, ...]:
    """Open libcuda and each library that a TensorFlow opens, in a process of its interpreter.

    The search order is that of the dynamic linker: LD_LIBRARY_PATH, the packages beside TensorFlow, the folders of
    the system. Errors have the text of the linker. Source: https://man7.org/linux/man-pages/man8/ld.so.8.html;
    TensorFlow's libraries name `../nvidia/*/lib`.
    """
    first = [Path(one) for one in environ.get("LD_LIBRARY_PATH", "").split(":") if one]
    folders = [*first, *sorted(Path(home).glob("nvidia/*/lib"))]

    def file(name: str) -> str:
        return next((str(folder / name) for folder in folders if (folder / name).exists()), name)

    names = (DRIVER, *wanted_libraries(build))
    files = [(name, name if name == DRIVER else file(name)) for name in names]
    try:
        answer = run_script(python, _OPEN, json.dumps(files), environ=environ, timeout_s=timeout_s)
        opened = json.loads(answer.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return (Library(DRIVER, error=f"opening the libraries took longer than {timeout_s:g} s"),)
    except (OSError, ValueError, LookupError):
        return (Library(DRIVER, error="the process that opened the libraries failed"),)
    return tuple(_library(entry, Path(home)) for entry in opened)


def _library(entry: Mapping[str, str], home: Path) -> Library:
    path, inside = entry["path"], (f"{home}/nvidia/", f"{home.resolve()}/nvidia/")
    return Library(entry["name"], entry["error"], path, entry["version"], path.startswith(inside))


def import_tensorflow(
    python: str | Path, *, environ: Mapping[str, str], timeout_s: float = 60.0, script: str = _IMPORT
) -> Import:
    """Import TensorFlow in a child, and list its GPUs. Thread: any; blocks for at most about `timeout_s`."""
    begun = time.monotonic()
    exit_code: int | None = None
    messages = {**environ, "TF_CPP_MIN_LOG_LEVEL": "0"}
    try:
        done = run_script(python, script, environ=messages, timeout_s=timeout_s)
        exit_code, out, text = done.returncode, done.stdout, done.stderr
    except OSError as error:
        return Import(exit_code=127, text=f"{python} cannot be started: {error.strerror}")
    except subprocess.TimeoutExpired as late:
        out, text = late.output, str(late.stderr)
    return _read_answer(exit_code, out, text, time.monotonic() - begun)


def _read_answer(exit_code: int | None, out: str, text: str, seconds: float) -> Import:
    line = next((line for line in reversed(out.splitlines()) if line.startswith(_MARK)), "")
    text = clean(text[-_LONGEST:], _LONGEST)
    try:
        result = json.loads(line.removeprefix(_MARK))
    except ValueError:
        return Import(exit_code, text=text, seconds=seconds)
    gpus = tuple(str(name) for name in result["gpus"])
    return Import(
        exit_code, str(result["version"]), str(result["path"]), gpus, bool(result["cuda"]), text, seconds
    )

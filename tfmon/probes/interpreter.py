"""The interpreter that trains, its TensorFlow, and a trial import."""

from __future__ import annotations

import ast
import functools
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tfmon.model.codec import clean
from tfmon.model.fast_dataclass import dataclass
from tfmon.system.limits import read_text
from tfmon.system.programs import run_program

BUILD_INFO = Path("tensorflow/python/platform/build_info.py")
BUILDS = frozenset((
    "tensorflow", "tensorflow-cpu", "tensorflow-cpu-aws", "tensorflow-gpu", "tensorflow-intel", "tensorflow-macos",
    "tensorflow-rocm", "tf-nightly", "tf-nightly-cpu",
))  # fmt: skip
_DIST_INFO = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*?)-([^-]+)\.dist-info")


NO_CWD = "import sys; sys.path[:] = [entry for entry in sys.path if entry]\n"
"""Removes the working directory from the path."""

_DESCRIBE = (
    NO_CWD
    + r"""
import importlib.util, json, os, platform, struct
def libc():
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):
        return ""
def made_by_uv():
    try:
        with open(os.path.join(sys.prefix, "pyvenv.cfg")) as lines:
            return any(line.partition("=")[0].strip() == "uv" for line in lines)
    except OSError:
        return False
def free_threaded():
    enabled = getattr(sys, "_is_gil_enabled", None)
    return enabled is not None and not enabled()
library = os.path.dirname(os.__file__)
print(json.dumps({
    "version": sys.version_info[:3],
    "machine": platform.machine(),
    "bits": struct.calcsize("P") * 8,
    "free_threaded": free_threaded(),
    "prefix": sys.prefix,
    "path": sys.path,
    "pip": importlib.util.find_spec("pip") is not None,
    "conda": os.path.isdir(os.path.join(sys.prefix, "conda-meta")),
    "managed": os.path.exists(os.path.join(library, "EXTERNALLY-MANAGED")) and sys.prefix == sys.base_prefix,
    "uv": made_by_uv(),
    "libc": libc(),
}))
"""
)


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The examined Python."""

    executable: str
    error: str = ""
    version: tuple[int, int, int] = (0, 0, 0)
    machine: str = ""
    bits: int = 64
    free_threaded: bool = False
    prefix: str = ""
    path: tuple[str, ...] = ()
    pip: bool = True
    conda: bool = False
    uv: bool = False
    managed: bool = False
    libc: str = ""
    """Empty if it is not glibc."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """An installed package."""

    name: str
    version: str
    folder: str


@dataclass(frozen=True, slots=True)
class Wheel:
    """An installed TensorFlow."""

    distribution: str = "tensorflow"
    version: str = ""
    has_cuda: bool | None = None
    metal: str = ""
    python: str = ""
    rocm: bool = False
    home: str = ""
    """Folder on the import path."""
    cuda_version: str = ""
    cudnn_version: str = ""
    capabilities: tuple[str, ...] = ()
    requires_python: str = ""
    requires: tuple[str, ...] = ()
    installer: str = ""


def describe_interpreter(
    python: str | Path, *, environ: Mapping[str, str] | None = None, timeout_s: float = 5.0
) -> Interpreter:
    """Ask an interpreter for its facts, in about 30 ms."""
    executable = str(python)
    try:
        answer = run_program([executable, "-c", _DESCRIBE], timeout_s, environ=environ)
    except subprocess.TimeoutExpired:
        return Interpreter(executable, error=f"it did not answer within {timeout_s:g} s")
    except OSError as error:
        return Interpreter(executable, error=f"it cannot be started: {error.strerror}")
    try:
        answers = json.loads(answer.stdout.splitlines()[-1])
        return Interpreter(
            executable, **{**answers, "version": tuple(answers["version"]), "path": tuple(answers["path"])}
        )
    except (ValueError, LookupError, TypeError):
        last = clean(answer.stderr.strip()).splitlines()[-1:] or [f"it ended with {answer.returncode}"]
        return Interpreter(executable, error=f"it is not a working Python: {last[0]}")


def find_shadows(folder: str | Path, *, alone: bool = False) -> tuple[str, ...]:
    """Return the paths in a folder that hide TensorFlow.

    `alone`: nothing else on the path has TensorFlow; then a folder without `__init__.py` counts, too. Source:
    https://docs.python.org/3/reference/import.html#the-path-based-finder.
    """
    parent = Path(folder)
    package = parent / "tensorflow"
    if (package / "python").is_dir() and (package / "__init__.py").is_file():
        return ()
    if (package / "__init__.py").is_file() or (alone and package.is_dir()):
        return (str(package),)
    return (str(parent / "tensorflow.py"),) if (parent / "tensorflow.py").is_file() else ()


def shadows_on(path: Sequence[str]) -> tuple[str, ...]:
    """Return the files on an import path that hide TensorFlow."""
    result: list[str] = []
    for folder in path:
        if (Path(folder) / "tensorflow/__init__.py").is_file() and not find_shadows(folder):
            break
        result.extend(find_shadows(folder))
    return tuple(result)


def _build_info(home: Path) -> dict[str, object]:
    match = re.search(r"\((\[.*\])\)", read_text(home / BUILD_INFO), re.DOTALL)
    try:
        return dict(ast.literal_eval(match[1])) if match is not None else {}
    except (ValueError, TypeError, SyntaxError):
        return {}


def read_wheel(python: str | Path | None = None, *, timeout_s: float = 5.0) -> Wheel | None:
    """Return the TensorFlow that `python` (default: this process) would import."""
    if python is None or os.path.abspath(python) == os.path.abspath(sys.executable):
        version, path = platform.python_version(), sys.path
    else:
        described = _described(str(python), timeout_s=timeout_s)
        version, path = ".".join(map(str, described.version)), list(described.path)
    result = find_wheel(path)
    return None if result is None else replace(result, python=version)


_described = functools.lru_cache(maxsize=8)(describe_interpreter)


def find_wheel(path: Sequence[str]) -> Wheel | None:
    """Return the first TensorFlow on an import path."""
    folders = [Path(folder) for folder in path if folder]
    home = next((folder for folder in folders if (folder / "tensorflow/__init__.py").is_file()), None)
    if home is None:
        return None
    metal = next((dist.version for dist in distributions(folders) if dist.name == "tensorflow-metal"), "")
    builds = [dist for dist in distributions([home]) if dist.name in BUILDS]
    # The package `tensorflow` may only require another one.
    build = max(builds, key=lambda dist: len(dist.name), default=Distribution("tensorflow", "", ""))
    info, folder = _build_info(home), Path(build.folder or home)
    fields, _, _ = read_text(folder / "METADATA").partition("\n\n")
    cuda, capabilities = info.get("is_cuda_build"), info.get("cuda_compute_capabilities")
    return Wheel(
        build.name,
        build.version,
        has_cuda=cuda if isinstance(cuda, bool) else None,
        metal=metal,
        rocm=info.get("is_rocm_build") is True,
        home=str(home),
        cuda_version=str(info.get("cuda_version") or ""),
        cudnn_version=str(info.get("cudnn_version") or ""),
        capabilities=tuple(map(str, capabilities)) if isinstance(capabilities, list | tuple) else (),
        requires_python="".join(_values("Requires-Python", fields)[:1]),
        requires=tuple(_values("Requires-Dist", fields)),
        installer=read_text(folder / "INSTALLER").strip(),
    )


def _values(field: str, fields: str) -> list[str]:
    # The module email would take a tenth of an agent's memory.
    return re.findall(rf"^{field}: *(.*\S)", fields, re.IGNORECASE | re.MULTILINE)


def distributions(path: Sequence[str | Path]) -> Iterator[Distribution]:
    """Yield the packages on an import path."""
    for folder in dict.fromkeys(path):
        try:
            with os.scandir(folder) as entries:
                names = sorted(entry.name for entry in entries if entry.name.endswith(".dist-info"))
        except OSError:
            continue
        for name in names:
            match = _DIST_INFO.fullmatch(name)
            if match is not None:
                plain = re.sub(r"[-_.]+", "-", match[1]).lower()
                yield Distribution(plain, match[2], str(Path(folder) / name))


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
    "built_with_cuda": bool(tf.test.is_built_with_cuda()),
}}
print({_MARK!r} + json.dumps(found), flush=True)
"""
)


@dataclass(frozen=True, slots=True)
class Import:
    """The result of a trial import."""

    exit_code: int | None = 0
    """Negative for a signal; `None` if it took too long."""
    version: str = ""
    path: str = ""
    gpus: tuple[str, ...] = ()
    built_with_cuda: bool | None = None
    text: str = ""
    seconds: float = 0.0

    @property
    def works(self) -> bool:
        """Whether the import worked."""
        return self.exit_code == 0 and bool(self.version)


def import_tensorflow(
    python: str | Path, *, environ: Mapping[str, str], timeout_s: float = 60.0, script: str = _IMPORT
) -> Import:
    """Import TensorFlow in a child. Thread: any; blocks."""
    begun = time.monotonic()
    exit_code: int | None = None
    messages = {**environ, "TF_CPP_MIN_LOG_LEVEL": "0"}
    try:
        done = run_program([str(python), "-c", script], timeout_s, environ=messages)
        exit_code, out, text = done.returncode, done.stdout, done.stderr
    except OSError as error:
        return Import(exit_code=127, text=f"{python} cannot be started: {error.strerror}")
    except subprocess.TimeoutExpired as late:
        out, text = late.output, str(late.stderr)
    line = next((line for line in reversed(out.splitlines()) if line.startswith(_MARK)), "")
    result = Import(exit_code, text=clean(text[-_LONGEST:], _LONGEST), seconds=time.monotonic() - begun)
    try:
        facts = json.loads(line.removeprefix(_MARK))
    except ValueError:
        return result
    return replace(result, **{**facts, "gpus": tuple(facts["gpus"])})

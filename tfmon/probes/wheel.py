"""The TensorFlow that an interpreter would import, read from its files without importing it."""

from __future__ import annotations

import functools
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

_PRINT = "import json, sys; print(json.dumps([sys.version.split()[0], *(p for p in sys.path if p)]))"
BUILD_INFO = Path("tensorflow/python/platform/build_info.py")
"""Names what a TensorFlow was built with."""
BUILDS = frozenset((
    "tensorflow", "tensorflow-cpu", "tensorflow-cpu-aws", "tensorflow-gpu", "tensorflow-intel", "tensorflow-macos",
    "tensorflow-rocm", "tf-nightly", "tf-nightly-cpu",
))  # fmt: skip
"""Distributions that install the package `tensorflow`."""
_DIST_INFO = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*?)-([^-]+)\.dist-info")


@dataclass(frozen=True, slots=True)
class Wheel:
    """The TensorFlow of an interpreter."""

    distribution: str
    """Name of the installed package, such as "tensorflow-cpu"; "tensorflow" without metadata."""
    version: str
    """Its version, or "" without metadata."""
    has_cuda: bool | None
    """Whether it was built for NVIDIA GPUs; None if its files do not say."""
    metal: str
    """Version of tensorflow-metal beside it, or "" without."""
    python: str = ""
    """Version of the interpreter; empty if it was not started."""
    rocm: bool = False
    """Whether it was built for AMD GPUs."""


def read_wheel(python: str | Path | None = None, *, timeout_s: float = 5.0) -> Wheel | None:
    """Return the TensorFlow that `python` would import (this interpreter by default), or None without one.

    Errors: None, too, for an interpreter that does not answer.
    Source: its sys.path, there `tensorflow/python/platform/build_info.py` as text and the names of
    `*.dist-info` folders.
    """
    if python is None or os.path.abspath(python) == os.path.abspath(sys.executable):  # noqa: PTH100 - keeps links
        version, path = platform.python_version(), sys.path
    else:
        version, *path = _describe(str(python), timeout_s) or ("",)
    found = find_wheel(path)
    return None if found is None else replace(found, python=version)


def find_wheel(path: Sequence[str]) -> Wheel | None:
    """Return the TensorFlow that is first on an import path, or None without one."""
    home = find_home(path)
    if home is None:
        return None
    folders = [Path(folder) for folder in path if folder]
    metal = next((version for name, version, _ in distributions(folders) if name == "tensorflow-metal"), "")
    builds = {name: version for name, version, _ in distributions([home]) if name in BUILDS}
    # `tensorflow` may only depend on `tensorflow-cpu` or `tensorflow-macos`, which is then the real one.
    name = max(builds, key=len, default="tensorflow")
    cuda, rocm = (_is_build(home / BUILD_INFO, kind) for kind in ("cuda", "rocm"))
    return Wheel(name, builds.get(name, ""), cuda, metal, rocm=bool(rocm))


def find_home(path: Sequence[str]) -> Path | None:
    """Return the folder of an import path that has the TensorFlow which is first on it, or None."""
    folders = [Path(folder) for folder in path if folder]
    return next((folder for folder in folders if (folder / "tensorflow/__init__.py").is_file()), None)


def distributions(path: Sequence[str | Path]) -> Iterator[tuple[str, str, str]]:
    """Yield name (in lower case and with dashes), version and folder of the packages on an import path.

    Source: names of the `*.dist-info` folders.
    """
    for folder in dict.fromkeys(path):
        try:
            with os.scandir(folder) as entries:
                names = sorted(entry.name for entry in entries if entry.name.endswith(".dist-info"))
        except OSError:
            continue
        for name in names:
            match = _DIST_INFO.fullmatch(name)
            if match is not None:
                yield re.sub(r"[-_.]+", "-", match[1]).lower(), match[2], str(Path(folder) / name)


def _is_build(build_info: Path, kind: str) -> bool | None:
    try:
        match = re.search(rf"'is_{kind}_build',\s*(True|False)", build_info.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None
    return None if match is None else match[1] == "True"


@functools.lru_cache(maxsize=8)
def _describe(python: str, timeout_s: float) -> tuple[str, ...]:
    """Return the version and the import path of another interpreter; empty if it does not answer."""
    try:
        answer = subprocess.run(
            [python, "-c", _PRINT],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        answers = json.loads(answer.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ()
    return tuple(str(one) for one in answers)

"""The examined interpreter: what it is, what is installed for it, and how to read versions and requirements."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfmon.doctor.facts import Build, Distribution, Interpreter
from tfmon.model.codec import clean
from tfmon.probes.machine import read_text
from tfmon.probes.wheel import BUILD_INFO, BUILDS

NO_CWD = "import sys; sys.path[:] = [entry for entry in sys.path if entry]\n"
"""First line of every script for the interpreter: nothing is imported from the working directory."""

_DESCRIBE = (
    NO_CWD
    + r"""
import importlib.util, json, os, platform, struct
def translated():
    if sys.platform != "darwin":
        return False
    import ctypes
    value, size = ctypes.c_int(0), ctypes.c_size_t(4)
    read, name = ctypes.CDLL(None).sysctlbyname, b"sysctl.proc_translated"
    return read(name, ctypes.byref(value), ctypes.byref(size), None, 0) == 0 and value.value == 1
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
    "translated": translated(),
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
_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*\(?([^;)]*)\)?\s*(?:;\s*(.*))?")
_CLAUSE = re.compile(r"(===|==|!=|<=|>=|~=|<|>)\s*([^,\s]+)")
_MARKER = re.compile(r"(\w+)\s*(==|!=|<=|>=|<|>)\s*[\"']([^\"']*)[\"']")
_DIST_INFO = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*?)-([^-]+)\.dist-info")


def run_script(
    python: str | Path, script: str, *arguments: str, environ: Mapping[str, str] | None, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run a script in an interpreter and return what it printed. Errors: as `subprocess.run`."""
    return subprocess.run(
        [str(python), "-c", script, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout_s,
        check=False,
        env=None if environ is None else dict(environ),
    )


def describe_interpreter(
    python: str | Path, *, environ: Mapping[str, str] | None = None, timeout_s: float = 5.0
) -> Interpreter:
    """Return what an interpreter is; `error` says why it does not answer.

    Source: its `sys`, `platform` and `os` modules, in a process of its own; takes about 30 ms.
    """
    executable = str(python)
    try:
        answer = run_script(python, _DESCRIBE, environ=environ, timeout_s=timeout_s)
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


def list_distributions(path: Sequence[str]) -> tuple[Distribution, ...]:
    """Return the packages on an import path; the first of a name counts.

    Source: names of the `*.dist-info` folders.
    """
    found: list[Distribution] = []
    for folder in dict.fromkeys(path):
        try:
            with os.scandir(folder) as entries:
                names = sorted(entry.name for entry in entries if entry.name.endswith(".dist-info"))
        except OSError:
            continue
        for name in names:
            match = _DIST_INFO.fullmatch(name)
            if match is not None:
                known = re.sub(r"[-_.]+", "-", match[1]).lower()
                found.append(Distribution(known, match[2], str(Path(folder) / name)))
    return tuple(found)


def find_shadows(folder: str | Path, *, alone: bool = False) -> tuple[str, ...]:
    """Return what in a folder would be imported as `tensorflow` and is not TensorFlow.

    Args:
        alone: Nothing else on the path has that name; then a folder without `__init__.py` counts, too.
    Source: the order in which Python looks,
    https://docs.python.org/3/reference/import.html#the-path-based-finder.
    """
    here = Path(folder)
    package = here / "tensorflow"
    if (package / "python").is_dir() and (package / "__init__.py").is_file():
        return ()
    if (package / "__init__.py").is_file() or (alone and package.is_dir()):
        return (str(package),)
    return (str(here / "tensorflow.py"),) if (here / "tensorflow.py").is_file() else ()


def shadows_on(path: Sequence[str]) -> tuple[str, ...]:
    """Return what comes before TensorFlow on an import path and has its name."""
    found: list[str] = []
    for folder in path:
        if (Path(folder) / "tensorflow/__init__.py").is_file() and not find_shadows(folder):
            break
        found.extend(find_shadows(folder))
    return tuple(found)


def read_build(home: str | Path, distributions: Sequence[Distribution], name: str) -> Build:
    """Return how the TensorFlow in a folder was built and what it requires.

    Source: its `build_info.py` as text; METADATA, WHEEL and INSTALLER of its distribution.
    """
    info = _build_info(Path(home) / BUILD_INFO)
    folder = next((one.folder for one in distributions if one.name == name and one.name in BUILDS), "")
    metadata, wheel = _header(folder, "METADATA"), _header(folder, "WHEEL")
    return Build(
        cuda_version=str(info.get("cuda_version") or ""),
        cudnn_version=str(info.get("cudnn_version") or ""),
        capabilities=tuple(str(one) for one in _listed(info.get("cuda_compute_capabilities"))),
        requires_python=next((value for key, value in metadata if key == "Requires-Python"), ""),
        requires=tuple(value for key, value in metadata if key == "Requires-Dist"),
        tags=tuple(value for key, value in wheel if key == "Tag"),
        installer=read_text(Path(folder) / "INSTALLER").strip() if folder else "",
    )


def _build_info(file: Path) -> dict[str, object]:
    match = re.search(r"\((\[.*\])\)", read_text(file), re.DOTALL)
    try:
        return dict(ast.literal_eval(match[1])) if match is not None else {}
    except (ValueError, TypeError, SyntaxError):
        return {}


def _listed(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()


def _header(folder: str, name: str) -> list[tuple[str, str]]:
    """Return the fields of a file of a distribution, up to the first empty line."""
    lines = read_text(Path(folder) / name).split("\n\n", 1)[0].splitlines() if folder else []
    pairs = (line.partition(":") for line in lines if not line.startswith((" ", "\t")))
    return [(key.strip(), value.strip()) for key, _, value in pairs]


@dataclass(frozen=True, slots=True)
class Requirement:
    """What a package requires of another one."""

    name: str
    """In lower case and with dashes."""
    allowed: str
    """Such as ">=1.26,<2.1"; may be empty."""


def release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version without a suffix: (2, 18, 0) of "2.18.0rc1"."""
    match = re.match(r"\s*v?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in match[1].split(".")) if match else ()


def fits(version: str, allowed: str) -> bool:
    """Return whether a version satisfies every clause; unknown clauses are ignored.

    Source: https://packaging.python.org/en/latest/specifications/version-specifiers/, without pre-releases.
    """
    return all(_satisfies(version, operator, bound) for operator, bound in _CLAUSE.findall(allowed))


def too_old(version: str, allowed: str) -> bool:
    """Return whether a version lies below what is allowed."""
    lower = (f"{operator}{bound}" for operator, bound in _CLAUSE.findall(allowed) if operator in (">=", ">", "~="))
    return not fits(version, ",".join(lower))


def upper_bound(allowed: str) -> tuple[int, ...]:
    """Return the lowest version that is too new, or ()."""
    return min((release(bound) for operator, bound in _CLAUSE.findall(allowed) if operator == "<"), default=())


def read_requirement(line: str, environment: Mapping[str, str]) -> Requirement | None:
    """Return what a `Requires-Dist` line requires, or None if its condition is false or unknown.

    Source: https://packaging.python.org/en/latest/specifications/dependency-specifiers/; only conditions with
    one comparison are known.
    """
    match = _REQUIREMENT.fullmatch(line.strip())
    if match is None or (match[3] and not _holds(match[3], environment)):
        return None
    return Requirement(match[1].lower().replace("_", "-").replace(".", "-"), match[2].replace(" ", ""))


def _holds(marker: str, environment: Mapping[str, str]) -> bool:
    match = _MARKER.fullmatch(marker.strip().strip("()").strip())
    if match is None or match[1] not in environment:
        return False
    value, operator, wanted = environment[match[1]], match[2], match[3]
    if "version" in match[1]:
        return _satisfies(value, operator, wanted)
    return (value == wanted) is (operator == "==") and operator in ("==", "!=")


def _satisfies(version: str, operator: str, bound: str) -> bool:
    have, want = release(version), release(bound)
    if not have or not want:
        return True
    if bound.endswith(".*"):
        return (have[: len(want)] == want) is (operator != "!=")
    if operator == "~=":
        return _padded(have) >= _padded(want) and have[: len(want) - 1] == want[:-1]
    order = (_padded(have) > _padded(want)) - (_padded(have) < _padded(want))
    return {"==": order == 0, "===": order == 0, "!=": order != 0, "<": order < 0, "<=": order <= 0,
            ">": order > 0, ">=": order >= 0}[operator]  # fmt: skip


def _padded(numbers: tuple[int, ...]) -> tuple[int, ...]:
    return (*numbers, *(0,) * (6 - len(numbers)))

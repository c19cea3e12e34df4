"""The examined interpreter: what it is, what is installed for it, and how its TensorFlow was built."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from email import message_from_string
from pathlib import Path

from tfmon.doctor.facts import Build, Distribution, Interpreter
from tfmon.model.codec import clean
from tfmon.model.limits import read_text
from tfmon.probes.wheel import BUILD_INFO, BUILDS

NO_CWD = "import sys; sys.path[:] = [entry for entry in sys.path if entry]\n"
"""First line of every script for the interpreter: nothing is imported from the working directory."""

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


def run_script(
    python: str | Path, script: str, *arguments: str, environ: Mapping[str, str] | None, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run a script in an interpreter and return its output.

    It is ended with all its processes when it takes longer than `timeout_s`.

    Raises:
        OSError: the interpreter cannot be started.
        subprocess.TimeoutExpired: it took too long; has what was printed.
    """
    command = [str(python), "-c", script, *arguments]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=None if environ is None else dict(environ),
        start_new_session=True,
    ) as child:
        try:
            out, err = child.communicate(timeout=timeout_s)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise subprocess.TimeoutExpired(command, timeout_s, *child.communicate()) from None
            raise
    return subprocess.CompletedProcess(command, child.returncode, out, err)


def describe_interpreter(
    python: str | Path, *, environ: Mapping[str, str] | None = None, timeout_s: float = 5.0
) -> Interpreter:
    """Return the facts of an interpreter; `error` says why it does not answer.

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


def find_shadows(folder: str | Path, *, alone: bool = False) -> tuple[str, ...]:
    """Return the names in a folder that hide TensorFlow.

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
    """Return the files on an import path that hide TensorFlow."""
    found: list[str] = []
    for folder in path:
        if (Path(folder) / "tensorflow/__init__.py").is_file() and not find_shadows(folder):
            break
        found.extend(find_shadows(folder))
    return tuple(found)


def read_build(home: str | Path, distributions: Sequence[Distribution], name: str) -> Build:
    """Return how the TensorFlow in a folder was built and what it requires.

    Source: its `build_info.py` as text; METADATA and INSTALLER of its distribution.
    """
    info = _build_info(Path(home) / BUILD_INFO)
    folder = next((one.folder for one in distributions if one.name == name and one.name in BUILDS), "")
    fields = message_from_string(read_text(Path(folder) / "METADATA") if folder else "")
    return Build(
        cuda_version=str(info.get("cuda_version") or ""),
        cudnn_version=str(info.get("cudnn_version") or ""),
        capabilities=tuple(str(one) for one in _listed(info.get("cuda_compute_capabilities"))),
        requires_python=fields.get("Requires-Python") or "",
        requires=tuple(fields.get_all("Requires-Dist", ())),
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

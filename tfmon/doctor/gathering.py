"""Gathers the facts: everything the checks go by, from roots that a test can exchange."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from tfmon.doctor.facts import VARIABLES, Build, Facts, Import, Library
from tfmon.doctor.interpreter import (
    NO_CWD,
    ask_interpreter,
    find_shadows,
    list_distributions,
    read_build,
    shadows_on,
)
from tfmon.doctor.libraries import open_libraries
from tfmon.doctor.machine import DriverReader, LoadWatch, read_host, read_platform
from tfmon.model.text import clean
from tfmon.probes.gpus import LIBRARY, look
from tfmon.probes.wheel import find_home, find_wheel


@dataclass(frozen=True, slots=True)
class Roots:
    """Where the facts come from; the machine itself unless a test says otherwise."""

    root: Path = Path("/")
    """What is read as / of /proc, /sys, /dev and /etc."""
    folder: Path | None = None
    """The working directory."""
    environ: Mapping[str, str] | None = None
    library: str = LIBRARY
    """The driver's library, as it is opened."""
    system: str = ""
    machine: str = ""


HERE = Roots()


def gather(
    python: str | Path = sys.executable,
    *,
    imports: bool = True,
    places: Roots = HERE,
    driver_timeout_s: float = 5.0,
    import_timeout_s: float = 60.0,
) -> Facts:
    """Return everything the checks go by. With `imports`, TensorFlow is imported at last, in a child.

    Without it the answer is there in well under a second, unless the driver is slow.
    Thread: any; blocks.
    """
    environ = dict(os.environ if places.environ is None else places.environ)
    watch = LoadWatch()
    platform = read_platform(places.root, environ, system=places.system, machine=places.machine)
    interpreter = ask_interpreter(python, environ=environ)
    hidden = shadows_on(interpreter.path)
    blocked = {str(Path(shadow).parent) for shadow in hidden}
    path = [folder for folder in interpreter.path if folder not in blocked]
    distributions = list_distributions(path)
    wheel, home = find_wheel(path), find_home(path)
    build = Build()
    if wheel is not None and home is not None:
        build = read_build(home, distributions, wheel.distribution)
    reader = DriverReader(places.root, lists_processes=not platform.wsl)
    sight = look(
        timeout_s=driver_timeout_s,
        environ=environ,
        root=places.root,
        library=places.library,
        system=platform.system,
        machine=interpreter.machine or platform.machine,
        examine=reader,
    )
    facts = Facts(
        python=interpreter,
        sight=sight,
        platform=platform,
        environ=MappingProxyType({name: environ[name] for name in VARIABLES if name in environ}),
        distributions=distributions,
        wheel=wheel,
        home="" if home is None else str(home),
        build=build,
        shadows=hidden,
        local_shadows=_local_shadows(places.folder or Path.cwd(), home),
        driver=reader.driver,
    )
    libraries = _open(facts, environ)
    others = watch.finish()
    imported = _import(facts, environ, import_timeout_s) if imports else None
    host = read_host(places.root, others=others)
    return replace(facts, libraries=libraries, host=host, imported=imported)


def _local_shadows(folder: Path, home: Path | None) -> tuple[str, ...]:
    if home is not None and folder.resolve() == home.resolve():
        return ()
    return find_shadows(folder, alone=home is None)


def _open(facts: Facts, environ: Mapping[str, str]) -> tuple[Library, ...] | None:
    """Open the libraries where a GPU of NVIDIA's may be, and a TensorFlow that could use it."""
    if facts.platform.system != "Linux" or not facts.has_nvidia:
        return None
    if facts.wheel is None or facts.wheel.has_cuda is False:
        return None
    return open_libraries(facts.python.executable, facts.home, facts.build, environ=environ)


def _import(facts: Facts, environ: Mapping[str, str], timeout_s: float) -> Import | None:
    """Import TensorFlow where there is one that would be imported; nothing that shadows it is run."""
    if facts.python.error or facts.wheel is None or facts.shadows:
        return None
    return import_tensorflow(facts.python.executable, environ=environ, timeout_s=timeout_s)


# ---------------- tensorFlow imported in a child of the examined interpreter, with a time limit


_MARK = "tfmon-doctor:"
_LONGEST = 100_000
_IMPORT = (
    NO_CWD
    + f"""
import json
import tensorflow as tf
told = {{
    "version": tf.__version__,
    "path": tf.__file__ or "",
    "gpus": [one.name for one in tf.config.list_physical_devices("GPU")],
    "cuda": bool(tf.test.is_built_with_cuda()),
}}
print({_MARK!r} + json.dumps(told), flush=True)
"""
)


def import_tensorflow(
    python: str | Path, *, environ: Mapping[str, str], timeout_s: float = 60.0, script: str = _IMPORT
) -> Import:
    """Import TensorFlow in a child, list its GPUs, and return what happened, its stderr included.

    The child is ended with all its processes when it takes longer than `timeout_s`.
    Thread: any; blocks for seconds.
    """
    told = {**environ, "TF_CPP_MIN_LOG_LEVEL": "0"}
    begun = time.monotonic()
    try:
        child = subprocess.Popen(
            [str(python), "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=told,
            start_new_session=True,
        )
    except OSError as error:
        return Import(exit_code=127, text=f"{python} cannot be started: {error.strerror}")
    exit_code: int | None
    with child:
        try:
            out, text = child.communicate(timeout=timeout_s)
            exit_code = child.returncode
        except subprocess.TimeoutExpired:
            _end(child)
            out, text = child.communicate()
            exit_code = None
        except BaseException:
            _end(child)
            raise
    return _read(exit_code, out, text, time.monotonic() - begun)


def _end(child: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)


def _read(exit_code: int | None, out: str, text: str, seconds: float) -> Import:
    line = next((line for line in reversed(out.splitlines()) if line.startswith(_MARK)), "")
    text = clean(text[-_LONGEST:], _LONGEST)
    try:
        told = json.loads(line.removeprefix(_MARK))
    except ValueError:
        return Import(exit_code, text=text, seconds=seconds)
    gpus = tuple(str(name) for name in told["gpus"])
    return Import(exit_code, str(told["version"]), str(told["path"]), gpus, bool(told["cuda"]), text, seconds)

"""Gathers the facts that the checks judge, all of them first. Tests replace the roots of what is read."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tfmon.doctor.children import import_tensorflow, open_libraries
from tfmon.doctor.facts import VARIABLES, Build, Distribution, Facts, Import, Library, Running
from tfmon.doctor.interpreter import describe_interpreter, find_shadows, read_build, shadows_on
from tfmon.doctor.machine import LoadWatch, read_driver_files, read_host, read_platform
from tfmon.model.views import default_base
from tfmon.probes.gpus import look, read_visibility
from tfmon.probes.obstacles import LIBRARY
from tfmon.probes.views import find_view
from tfmon.probes.wheel import distributions, find_home, find_wheel


@dataclass(frozen=True, slots=True)
class Roots:
    """Where the facts are read: on this machine, unless a test says otherwise."""

    root: Path = Path("/")
    """The folder of /proc, /sys, /dev and /etc."""
    folder: Path | None = None
    """The working directory."""
    environ: Mapping[str, str] | None = None
    library: str = LIBRARY
    """File name of the driver's library."""


HERE = Roots()


def gather(
    python: str | Path = sys.executable,
    *,
    imports: bool = True,
    roots: Roots = HERE,
    running: Running | None = None,
) -> Facts:
    """Return the facts about an interpreter and this machine.

    Takes well under a second without `imports`, unless the driver is slow.

    Args:
        imports: Import TensorFlow too, in a child.
        running: The race that runs meanwhile; its probes know what others use, and its lanes are no others.
    Thread: any; blocks.
    """
    environ = dict(os.environ if roots.environ is None else roots.environ)
    watch = LoadWatch()
    platform = read_platform(roots.root, environ)
    interpreter = describe_interpreter(python, environ=environ)
    hidden = shadows_on(interpreter.path)
    blocked = {str(Path(shadow).parent) for shadow in hidden}
    path = [folder for folder in interpreter.path if folder not in blocked]
    installed = tuple(Distribution(*one) for one in distributions(path))
    wheel, home = find_wheel(path), find_home(path)
    build = Build()
    if wheel is not None and home is not None:
        build = read_build(home, installed, wheel.distribution)
    visibility = read_visibility(
        environ=environ,
        root=roots.root,
        library=roots.library,
        system=platform.system,
        machine=interpreter.machine or platform.machine,
    )
    facts = Facts(
        python=interpreter,
        visibility=visibility,
        platform=platform,
        environ={name: environ[name] for name in VARIABLES if name in environ},
        distributions=installed,
        wheel=wheel,
        home="" if home is None else str(home),
        build=build,
        shadows=hidden,
        local_shadows=_local_shadows(roots.folder or Path.cwd(), home),
        driver=read_driver_files(roots.root),
        samples=tuple(look(visibility.physical_gpus)),
    )
    libraries = _open(facts, environ)
    others = watch.finish() if running is None else running.others
    imported = _import(facts, environ) if imports else None
    host = read_host(roots.root, others)
    own = () if running is None else running.pids
    view = None
    if running is None and roots.root == HERE.root:
        view = find_view(str(roots.folder or Path.cwd()), default_base())
    return replace(facts, libraries=libraries, host=host, imported=imported, view=view, own_pids=own)


def _local_shadows(folder: Path, home: Path | None) -> tuple[str, ...]:
    if home is not None and folder.resolve() == home.resolve():
        return ()
    return find_shadows(folder, alone=home is None)


def _open(facts: Facts, environ: Mapping[str, str]) -> tuple[Library, ...] | None:
    """Open the libraries if there may be an NVIDIA GPU and a TensorFlow that could use it."""
    if facts.platform.system != "Linux" or not facts.has_nvidia:
        return None
    if facts.wheel is None or facts.wheel.has_cuda is False:
        return None
    return open_libraries(facts.python.executable, facts.home, facts.build, environ=environ)


def _import(facts: Facts, environ: Mapping[str, str]) -> Import | None:
    """Import TensorFlow if it would be imported; a file that shadows it is not run."""
    if facts.python.error or facts.wheel is None or facts.shadows:
        return None
    return import_tensorflow(facts.python.executable, environ=environ)

"""Gathers the facts: everything the checks go by, from roots that a test can exchange."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from tfmon.doctor.driver import DriverReader
from tfmon.doctor.facts import VARIABLES, Build, Facts, Import, Library
from tfmon.doctor.host import LoadWatch, read_host, read_platform
from tfmon.doctor.importing import import_tensorflow
from tfmon.doctor.interpreter import (
    ask_interpreter,
    find_shadows,
    list_distributions,
    read_build,
    shadows_on,
)
from tfmon.doctor.libraries import open_libraries
from tfmon.probes.gpus import LIBRARY, look
from tfmon.probes.wheel import find_home, find_wheel


@dataclass(frozen=True, slots=True)
class Places:
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


HERE = Places()


def gather(
    python: str | Path = sys.executable,
    *,
    imports: bool = True,
    places: Places = HERE,
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

"""The monitor's questions to an agent: functions that it runs on the host."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

from tfmon.doctor import facts
from tfmon.lanes.launch import BOOTSTRAP
from tfmon.lanes.plan import digest
from tfmon.model.codec import plain, read
from tfmon.model.folder_views import View
from tfmon.model.gpu_samples import GpuSample
from tfmon.model.race import Machine
from tfmon.model.readings import HostSample
from tfmon.probes import find_gpus
from tfmon.probes.base import Gpu
from tfmon.probes.find_gpus import GpuSearch, with_devices
from tfmon.probes.interpreter import read_wheel
from tfmon.probes.machine import read_machine
from tfmon.probes.view_support import find_view
from tfmon.system.view_files import recordings_folder, settle, sweep


def answer(question: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of a question as JSON types, or an `error`. Thread: any; may take seconds."""
    try:
        known = QUESTIONS[question]
        kinds = get_type_hints(known)
        return {"answer": plain(known(**{name: read(value, kinds[name]) for name, value in arguments.items()}))}
    except Exception as error:  # noqa: BLE001 - the monitor shows it
        return {"error": f"the question {question!r} failed: {type(error).__name__}: {error}"}


def machine() -> Machine:
    """Return the facts of the machine without opening a driver."""
    local = replace(read_machine(), python=platform.python_version())
    return with_devices(local, GpuSearch(), read_wheel())


def gpus() -> tuple[GpuSearch, Machine]:
    """Search for GPUs, which takes seconds if the driver's first call is slow."""
    search = find_gpus.find_gpus()
    return search, replace(with_devices(machine(), search, read_wheel()), no_gpu=search.reason)


def look(gpus: tuple[Gpu, ...]) -> tuple[GpuSample, ...]:
    """Return a sample of each GPU."""
    return tuple(find_gpus.look(gpus))


def paths(
    paths: tuple[str, ...], programs: tuple[str, ...], folder: str, path_first: bool
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the missing paths and programs, and the digests of `paths`."""
    first = [str(Path(sys.executable).parent)] if path_first else []
    path = os.pathsep.join([*first, os.environ.get("PATH", os.defpath)])
    missing = [] if Path(folder).is_dir() else [folder]
    missing += [name for name in paths if not os.access(Path(folder) / name, os.R_OK)]
    for name in programs:
        program = str(Path(folder) / name) if os.sep in name else name
        if shutil.which(program, path=path) is None:
            missing.append(name)
    return tuple(missing), {name: digest(Path(folder) / name) for name in paths}


def view(folder: str, copy_bytes: int, kept: bool) -> View:
    """Return the best view of a folder; without a writable home directory it is in the agent's folder."""
    base = recordings_folder()
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=base).close()
    except OSError as error:
        why = f"nothing can be written in {base}: {error.strerror}"
        found = find_view(folder, BOOTSTRAP.parents[2] / "views", copy_bytes, kept=False)
        return replace(found, reason=f"{why}; {found.reason}" if found.reason else why)
    sweep(base)
    return find_view(folder, base, copy_bytes, kept=kept)


def doctor(
    imports: bool,
    folder: str,
    python: str = "",
    own_pids: tuple[int, ...] = (),
    samples: tuple[HostSample, ...] | None = None,
) -> facts.Facts:
    """Gather the doctor's facts; with `samples`, for a running race."""
    examined = os.path.expanduser(python) or sys.executable  # noqa: PTH111 - it may be a bare command
    return facts.gather_facts(examined, imports=imports, folder=Path(folder), samples=samples, own_pids=own_pids)


QUESTIONS: dict[str, Callable[..., object]] = {
    question.__name__: question for question in (machine, gpus, look, paths, view, settle, doctor)
}

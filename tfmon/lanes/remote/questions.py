"""The monitor's questions to an agent."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from tfmon.lanes.plan import digest
from tfmon.lanes.remote.trouble import HostError
from tfmon.model.codec import CodecError, plain, read
from tfmon.model.events import Event
from tfmon.model.folder_views import View
from tfmon.model.gpu_samples import GpuSample
from tfmon.model.race import Machine
from tfmon.probes.base import Gpu, Ticker
from tfmon.probes.find_gpus import GpuSearch, choose_probes, find_gpus, look, with_devices
from tfmon.probes.interpreter import read_wheel
from tfmon.probes.machine import read_machine
from tfmon.system.view_files import default_base, settle, sweep

if TYPE_CHECKING:
    from tfmon.doctor.diagnosis import Diagnosis

Part = TypeVar("Part")
Answer: TypeAlias = dict[str, Any]
"""Without an answer, `error` and `hint`."""
EVERY_S = 1.0


def answer(question: str, arguments: Mapping[str, Any]) -> Answer:
    """Answer a question, or return an `error`. Thread: any; may take seconds."""
    known = _QUESTIONS.get(question)
    if known is None:
        return {"error": f"its tfmon does not know the question {question!r}"}
    try:
        return known(**arguments)
    except Exception as error:  # noqa: BLE001 - the monitor shows it
        return {"error": f"the question {question!r} failed: {type(error).__name__}: {error}"}


def read_part(answer: Answer, name: str, kind: type[Part]) -> Part:
    """Return a part of an answer; raises HostError for another type."""
    try:
        part: Part = read(answer.get(name), kind, strict=False)
    except CodecError as error:
        raise HostError(f"an answer of the agent cannot be read: {error}") from None
    return part


def _machine() -> Answer:
    """Opens no driver."""
    return {"machine": plain(with_devices(_here(), GpuSearch(), read_wheel()))}


def _here(python: str = "") -> Machine:
    return replace(read_machine(), python="" if python else platform.python_version())


def _gpus(python: str = "") -> Answer:
    """Takes seconds if the driver's first call is slow."""
    search = find_gpus(_own(python))
    machine = replace(with_devices(_here(python), search, read_wheel(_own(python))), no_gpu=search.reason)
    return {"search": plain(search), "machine": plain(machine)}


def _look(gpus: object = ()) -> Answer:
    return {"samples": plain(look(read(gpus, tuple[Gpu, ...], strict=False)))}


def read_look_answer(answer: Answer, host: str) -> tuple[GpuSample, ...]:
    """Return the samples of an answer to `look`."""
    samples: tuple[GpuSample, ...] = read_part(answer, "samples", tuple[GpuSample, ...])
    return tuple(replace(sample, host=host) for sample in samples)


def _own(python: str) -> str | None:
    return os.path.expanduser(python) if python else None  # noqa: PTH111 - it may be a bare command


def _paths(paths: Sequence[str], programs: Sequence[str], folder: str, path_first: bool = False) -> Answer:
    own = [str(Path(sys.executable).parent)] if path_first else []
    path = os.pathsep.join([*own, os.environ.get("PATH", os.defpath)])
    missing = [] if Path(folder).is_dir() else [folder]
    missing += [name for name in paths if not os.access(Path(folder) / name, os.R_OK)]
    for name in programs:
        program = str(Path(folder) / name) if os.sep in name else name
        if shutil.which(program, path=path) is None:
            missing.append(name)
    return {"missing": missing, "digests": {name: digest(Path(folder) / name) for name in paths}}


def read_differing_answer(answer: Answer, folder: str) -> tuple[str, ...]:
    """Return the files whose content differs from that here."""
    digests: dict[str, str] = read_part(answer, "digests", dict[str, str])
    return tuple(name for name, theirs in digests.items() if theirs and theirs != digest(Path(folder) / name))


def _view(folder: str, copy_bytes: int, *, kept: bool) -> Answer:
    from tfmon.probes.view_support import find_view

    sweep(default_base())
    return {"view": plain(find_view(folder, default_base(), copy_bytes, kept=kept))}


def _settle(view: object, age_s: float) -> Answer:
    return {"view": plain(settle(read(view, View, strict=False), age_s))}


def _doctor(
    imports: bool, folder: str, python: str = "", pids: Sequence[int] = (), others: object = None
) -> Answer:
    """With `others`, for a running race."""
    from tfmon.doctor.gather_facts import Roots, gather_facts
    from tfmon.probes.surroundings import OthersLoad

    load = None if others is None else read(others, OthersLoad, strict=False)
    examined, roots = _own(python) or sys.executable, Roots(folder=Path(folder))
    facts = gather_facts(examined, imports=imports, roots=roots, others=load, own_pids=tuple(pids))
    return {"facts": plain(facts)}


def read_doctor_answer(answer: Answer) -> Diagnosis:
    """Return the report on an answer to `doctor`."""
    from tfmon.doctor.diagnosis import Diagnosis
    from tfmon.doctor.facts import Facts

    return Diagnosis(read_part(answer, "facts", Facts))


_QUESTIONS: dict[str, Callable[..., Answer]] = {
    "machine": _machine,
    "gpus": _gpus,
    "look": _look,
    "paths": _paths,
    "view": _view,
    "settle": _settle,
    "doctor": _doctor,
}


def start_readings(
    lanes: Callable[[], Mapping[str, int]],
    emit: Callable[[Event], object],
    gpus: Sequence[Gpu] = (),
    *,
    every_s: float = EVERY_S,
) -> list[Ticker]:
    """Start the probes of this machine."""
    tickers = [Ticker(probe, emit, interval_s=every_s) for probe in choose_probes(lanes, gpus)]
    for ticker in tickers:
        ticker.start()
    return tickers

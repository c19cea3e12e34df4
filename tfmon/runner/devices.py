"""The devices of a lane: which GPUs it trains on, and what changes when it trains on several devices at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tfmon.catalog import ScenarioInfo
from tfmon.errors import DeviceAbsentError, UsageError
from tfmon.model.knobs import BATCH_SCOPE, BATCH_SIZE, Settings
from tfmon.model.several import obstacle
from tfmon.model.spec import ALL, LaneSpec, parse_lane

if TYPE_CHECKING:
    from tfmon.probes.base import Gpu
    from tfmon.probes.gpus import GpuSearch

EVERY = f"gpu:{ALL}"


def with_scope(info: ScenarioInfo, lanes: Sequence[str]) -> ScenarioInfo:
    """Return a scenario as a race of these lanes has it: with `batch_scope` if one is on several devices.

    Raises: SpecError for a device that cannot be.
    """
    if info.command or not any(map(_several, lanes)):
        return info
    names = [knob.name for knob in info.knobs]
    if BATCH_SIZE.name not in names or BATCH_SCOPE.name in names:
        return info
    place = names.index(BATCH_SIZE.name) + 1
    return replace(info, knobs=(*info.knobs[:place], BATCH_SCOPE, *info.knobs[place:]))


def _several(lane: str) -> bool:
    spec = parse_lane(lane.partition(",")[0], ())
    return spec.devices > 1 or spec.device == EVERY


def choose_gpus(spec: LaneSpec, search: Callable[[str], GpuSearch]) -> tuple[LaneSpec, str | None]:
    """Return a lane with the GPUs that it trains on, and their UUIDs as CUDA reads them; None for the CPU.

    `search` finds the GPUs of a host.

    Raises: DeviceAbsentError for a GPU that is not there.
    """
    if spec.kind == "cpu":
        return spec, None
    found = search(spec.host)
    if not found.gpus:
        raise DeviceAbsentError(f"{spec.place} is not there: {found.reason}", found.hint)
    if spec.chosen:
        by_index = {gpu.index: gpu for gpu in found.gpus}
        absent = [index for index in spec.indexes if index not in by_index]
        if absent:
            raise DeviceAbsentError(_absent_text(spec, absent), _listed(spec, found.gpus))
        gpus: Sequence[Gpu] = [by_index[index] for index in spec.indexes]
    elif spec.device == EVERY:
        gpus = found.gpus
    elif spec.devices > len(found.gpus):
        there = "is one GPU" if len(found.gpus) == 1 else f"are {len(found.gpus)} GPUs"
        raise DeviceAbsentError(f"{spec.place} is not there: there {there}", _listed(spec, found.gpus))
    else:
        gpus = sorted(idlest(found.gpus, spec.devices), key=lambda gpu: gpu.index)
    device = "gpu:" + "+".join(str(gpu.index) for gpu in gpus)
    return replace(spec, device=device), ",".join(gpu.uuid for gpu in gpus)


def idlest(gpus: Sequence[Gpu], count: int) -> Sequence[Gpu]:
    """Return the first GPUs in the order of the driver."""
    return gpus[:count]


def _absent_text(spec: LaneSpec, absent: Sequence[int]) -> str:
    if spec.devices == 1:
        return f"{spec.place} is not there"
    names = [f"gpu:{index}" for index in absent]
    return f"{' and '.join(names)} of {spec.place} {'is' if len(names) == 1 else 'are'} not there"


def _listed(spec: LaneSpec, gpus: Sequence[Gpu]) -> str:
    known = ", ".join(f"gpu:{gpu.index} ({gpu.name})" for gpu in gpus)
    return f"{spec.host or 'this machine'} has {known}"


def check_together(spec: LaneSpec, settings: Settings) -> None:
    """Raise UsageError for settings under which the devices of a lane cannot train together."""
    reason = obstacle(settings, spec.devices)
    if reason:
        raise UsageError(f"{spec.place}: {reason}")

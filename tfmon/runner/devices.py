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
from tfmon.runner import instances

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


def choose_gpus(spec: LaneSpec, search: Callable[[str], GpuSearch]) -> tuple[LaneSpec, tuple[Gpu, ...]]:
    """Return a lane with the devices that it trains on, and its GPUs in that order; none for the CPU.

    `search` finds the GPUs of a host. `Idle.settle` comes before: here only `gpu:all` is left to be chosen.

    Raises:
        DeviceAbsentError: a GPU is not there, or is split up.
        UsageError: the beginning of a UUID fits several instances.
    """
    if spec.kind == "cpu":
        return spec, ()
    found = search(spec.host)
    if spec.is_instance:
        return instances.settle(spec, found), (instances.instance_of(spec, found),)
    if found.plugin is not None and not found.gpus and spec.indexes == (found.plugin.index,):
        return spec, (found.plugin,)
    if not found.gpus:
        raise DeviceAbsentError(f"{spec.place} is not there: {found.reason}", found.hint)
    if spec.settled:
        by_index = {gpu.index: gpu for gpu in found.gpus}
        absent = [index for index in spec.indexes if index not in by_index]
        if absent:
            raise DeviceAbsentError(_absent_text(spec, absent), _listed(spec, found.gpus))
        return instances.settle(spec, found), tuple(by_index[index] for index in spec.indexes)
    if not found.whole:
        raise DeviceAbsentError(f"{spec.place} is not there: every GPU is split up (MIG)", instances.listed(found))
    if spec.device != EVERY:
        there = "is one GPU" if len(found.whole) == 1 else f"are {len(found.whole)} GPUs"
        raise DeviceAbsentError(f"{spec.place} is not there: there {there}", _listed(spec, found.whole))
    return replace(spec, device=device_of(found.whole)), found.whole


def device_of(gpus: Sequence[Gpu]) -> str:
    """Return these GPUs as the device of a lane, such as `gpu:0+1`."""
    return "gpu:" + "+".join(str(gpu.index) for gpu in gpus)


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

"""The devices of a lane: which GPUs it may train on, and what changes when it trains on several at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tfmon.catalog import ScenarioInfo
from tfmon.errors import DeviceAbsentError, UsageError
from tfmon.model.knobs import BATCH_SCOPE, BATCH_SIZE, Settings
from tfmon.model.spec import ALL, ANY_GPU, INSTANCE, LaneSpec, obstacle, parse_lane

if TYPE_CHECKING:
    from tfmon.probes.base import Gpu
    from tfmon.probes.gpus import GpuSearch

EVERY = f"gpu:{ALL}"
MOST_LISTED = 3
"""More GPUs of one model are not listed one by one."""


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


def candidates(spec: LaneSpec, found: GpuSearch) -> tuple[tuple[Gpu, ...], int]:
    """Return the GPUs that a lane may train on, and on how many of them it does; none for one on the CPU.

    Raises:
        DeviceAbsentError: a GPU is not there, or is split up.
        UsageError: the beginning of a UUID fits several instances.
    """
    if spec.kind == "cpu":
        return (), 0
    if spec.is_instance:
        return (instance_of(spec, found),), 1
    if not found.usable:
        raise DeviceAbsentError(f"{spec.place} is not there: {found.reason}", found.hint)
    if spec.indexes:
        return _named(spec, found), spec.devices
    if spec.device == ANY_GPU:
        return found.usable, 1
    if not found.whole:
        raise DeviceAbsentError(f"{spec.place} is not there: every GPU is split up (MIG)", listed(found))
    count = len(found.whole) if spec.device == EVERY else spec.devices
    if count > len(found.whole):
        there = "is one GPU" if len(found.whole) == 1 else f"are {len(found.whole)} GPUs"
        raise DeviceAbsentError(f"{spec.place} is not there: there {there}", _listed(spec, found))
    return found.whole, count


def _named(spec: LaneSpec, found: GpuSearch) -> tuple[Gpu, ...]:
    by_index = {gpu.index: gpu for gpu in found.gpus}
    absent = [f"gpu:{index}" for index in spec.indexes if index not in by_index]
    if absent:
        words = f"{' and '.join(absent)} of {spec.place} {'is' if len(absent) == 1 else 'are'}"
        words = f"{spec.place} is" if spec.devices == 1 else words
        raise DeviceAbsentError(f"{words} not there", _listed(spec, found))
    named = tuple(by_index[index] for index in spec.indexes)
    for gpu in named:
        if gpu.split:
            place = f"{spec.place_of(gpu.index)} ({gpu.name})"
            raise DeviceAbsentError(f"{place} is split up (MIG)", listed(found, gpu.uuid))
    return named


def _listed(spec: LaneSpec, found: GpuSearch) -> str:
    """Return the names that are allowed."""
    if not found.whole:
        return listed(found)
    known = ", ".join(f"gpu:{gpu.index} ({gpu.name})" for gpu in found.whole)
    if len(found.whole) > MOST_LISTED and len({gpu.name for gpu in found.gpus}) == 1:
        known = f"{len(found.whole)} GPUs from gpu:{found.whole[0].index} on ({found.whole[0].name})"
    return f"{spec.host or 'this machine'} has {known}"


def device_of(gpus: Sequence[Gpu], found: GpuSearch) -> str:
    """Return GPUs as the device of a lane, such as `gpu:0+1`; an instance by as much of its UUID as is unique."""
    if gpus[0].part_of:
        return short_name(gpus[0], found)
    return "gpu:" + "+".join(str(gpu.index) for gpu in gpus)


def check_together(spec: LaneSpec, settings: Settings) -> None:
    """Raise UsageError for settings under which the devices of a lane cannot train together."""
    reason = obstacle(settings, spec.devices)
    if reason:
        raise UsageError(f"{spec.place}: {reason}")


# ---------------- instances of GPUs that are split up (MIG)


if TYPE_CHECKING:
    from tfmon.probes.base import Gpu
    from tfmon.probes.gpus import GpuSearch

_SHORTEST = len(INSTANCE) + 8
"""Characters of a UUID that name an instance on the screen, if no other has the same."""


def instance_of(spec: LaneSpec, found: GpuSearch) -> Gpu:
    """Return the instance that a lane names.

    Raises:
        DeviceAbsentError: there is no such instance.
        UsageError: the beginning of a UUID fits several.
    """
    fitting = [one for one in found.instances if one.uuid.lower().startswith(spec.device.lower())]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise UsageError(f"{spec.place} fits {len(fitting)} instances", listed(found))
    if not found.usable:
        raise DeviceAbsentError(f"{spec.place} is not there: {found.reason}", found.hint)
    raise DeviceAbsentError(f"{spec.place} is not there", listed(found))


def short_name(instance: Gpu, found: GpuSearch) -> str:
    """Return as much of an instance's UUID as tells it from the others, 8 digits at least."""
    others = [one.uuid for one in found.instances if one.uuid != instance.uuid]
    length = _SHORTEST
    while any(uuid.startswith(instance.uuid[:length]) for uuid in others):
        length += 1
    return instance.uuid[:length]


def listed(found: GpuSearch, part_of: str = "") -> str:
    """Return the names that are allowed."""
    instances = [one for one in found.instances if part_of in ("", one.part_of)]
    if not instances:
        return "there is no instance of a split GPU here; `tfmon doctor` lists the GPUs"
    words = ", ".join(f"--lane {short_name(one, found)} ({one.name})" for one in instances)
    return f"name an instance: {words}"

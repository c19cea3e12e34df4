"""Instances of GPUs that are split up (MIG) as devices of lanes: found by the beginning of their UUID."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfmon.errors import DeviceAbsentError, UsageError
from tfmon.model.spec import INSTANCE, LaneSpec

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

"""What is told of a GPU that cannot be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from tfmon.model.readings import NOT_READ, Missing
from tfmon.model.samples import GpuFault, GpuSample
from tfmon.probes.base import Gpu

_ALWAYS = ("busy_pct", "used_bytes", "total_bytes", "power_w", "power_limit_w", "temperature_c")
_READINGS = (*_ALWAYS, *(one.name for one in fields(GpuSample) if one.default is NOT_READ))
_KINDS = {"GPU": "nvidia", "MIG": "mig"}


def absent_gpu(
    gpu: Gpu, at_ns: int, reason: str, *, part_of: str = "", faults: Sequence[GpuFault] = ()
) -> GpuSample:
    """Return a sample of a GPU in which every reading is missing for one reason."""
    readings: dict[str, Any] = dict.fromkeys(_READINGS, Missing(reason))
    return GpuSample(
        at_ns=at_ns,
        key=gpu.uuid,
        index=gpu.index,
        name=gpu.name,
        kind=kind_of(gpu),
        part_of=part_of,
        busy_source="",
        held_why=reason,
        faults=tuple(faults),
        **readings,
    )


def kind_of(gpu: Gpu) -> str:
    """Return which kind of device a GPU is, as in `GpuSample.kind`."""
    return _KINDS.get(gpu.uuid.partition("-")[0], "apple")

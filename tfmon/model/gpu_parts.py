"""What a lane uses of each of its GPUs, and of all together. Pure; `gpu_accounting` has the rules for one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tfmon.model import gpu_accounting
from tfmon.model.gpu_accounting import ALLOCATOR, DRIVER, ONLY_PROCESS, GpuEnergy
from tfmon.model.lane_statistics import Point
from tfmon.model.readings import GpuSample, Missing, Reading, known
from tfmon.model.records import replace

NOT_YET = Missing("not sampled yet")
NOT_ALL = Missing("not every GPU of this lane is sampled yet")


@dataclass(frozen=True, slots=True)
class GpuPart:
    """What a lane uses of one of its GPUs."""

    busy_pct: Reading = NOT_YET
    """How busy the GPU is, with the work of all processes."""
    lane_busy_pct: Reading = NOT_YET
    """Share of its time that the lane's own processes took."""
    used_bytes: Reading = NOT_YET
    """Its memory that the lane uses, from `source`."""
    source: str = ""
    used_before: float | None = None
    """Bytes used on the whole GPU before the lane opened it."""
    energy: GpuEnergy = field(default_factory=GpuEnergy)

    def plus(
        self,
        sample: GpuSample,
        pids: Sequence[int],
        points: Sequence[Point],
        *,
        before: bool,
        only_lane: bool,
        racing: bool,
        shared: bool,
        peak_bytes: int | None,
    ) -> GpuPart:
        """Return the lane's use after a sample of the GPU.

        Args:
            sample: The GPU's.
            pids: Processes of the lane.
            points: Its windows.
            before: Whether the lane has not opened the GPU yet.
            only_lane: Whether it is known that no other lane trains on it.
            racing: Whether the lane races.
            shared: Whether another lane trains on it.
            peak_bytes: Memory that the framework allocated on this GPU; None for unknown.
        """
        first = self.used_before
        if first is None and before:
            first = known(sample.used_bytes)
        used, source = gpu_accounting.used_bytes_of_lane(
            sample,
            pids,
            only_lane=only_lane,
            peak_bytes=peak_bytes,
            before_bytes=None if sample.part_of else first,
        )
        energy = self.energy.plus(sample, points, shared=shared) if racing else self.energy.interrupted()
        lane_busy = gpu_accounting.busy_pct(sample, pids, only_lane=only_lane)
        return GpuPart(sample.busy_pct, lane_busy, used, source, first, energy)


GpuParts: TypeAlias = Mapping[str, GpuPart]
"""By the key of the GPU."""


def interrupted(parts: GpuParts) -> GpuParts:
    """Return the parts with a gap in their energy."""
    return {key: replace(part, energy=part.energy.interrupted()) for key, part in parts.items()}


def measured_anew(parts: GpuParts) -> GpuParts:
    """Return the parts with no energy measured."""
    return {key: replace(part, energy=GpuEnergy()) for key, part in parts.items()}


def used_of(parts: GpuParts, count: int, peak_bytes: int | None) -> tuple[Reading, str]:
    """Return the memory used on all of the lane's GPUs, and the source of the figure.

    `peak_bytes` is what the framework allocated on all of them: it counts where the driver does not list the
    lane's processes on every one.
    """
    if len(parts) < count:
        return NOT_ALL, ""
    sources = dict.fromkeys(part.source for part in parts.values())
    if count > 1 and peak_bytes and not set(sources) <= {DRIVER, ONLY_PROCESS}:
        return float(peak_bytes), ALLOCATOR
    total = summed([part.used_bytes for part in parts.values()])
    return total, "" if isinstance(total, Missing) else " + ".join(sources)


def counted(names: Sequence[str]) -> str:
    """Return the names of GPUs in a row, such as "2x NVIDIA H200" for two alike."""
    found = ((names.count(name), name) for name in dict.fromkeys(names))
    return " + ".join(f"{count}x {name}" if count > 1 else name for count, name in found)


def summed(readings: Sequence[Reading]) -> Reading:
    """Return the sum, or why one of them is not known."""
    total = 0.0
    for reading in readings:
        if isinstance(reading, Missing):
            return reading
        total += reading
    return total if readings else NOT_ALL


def training_w(parts: GpuParts, count: int) -> Reading:
    """Return about what the GPUs of a lane draw together while it trains."""
    if count > 1 and len(parts) < count:
        return NOT_ALL
    return summed([part.energy.training_w for part in parts.values()]) if parts else GpuEnergy().training_w

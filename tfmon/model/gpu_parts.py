"""What a lane uses of each of its GPUs, and of all together. Pure; `gpu_accounting` has the rules for one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tfmon.model import gpu_accounting
from tfmon.model.gpu_accounting import ALLOCATOR, DRIVER, NO_GPU, ONLY_PROCESS, GpuEnergy
from tfmon.model.gpu_others import Taken
from tfmon.model.lane_statistics import Point
from tfmon.model.readings import NOT_SAMPLED, GpuSample, Missing, Reading, known
from tfmon.model.records import replace
from tfmon.model.window_sums import Mean

NOT_ALL = Missing("not every GPU of this lane is sampled yet")


@dataclass(frozen=True, slots=True)
class GpuPart:
    """What a lane uses of one of its GPUs."""

    busy_pct: Reading = NOT_SAMPLED
    """How busy the GPU is, with the work of all processes."""
    lane_busy_pct: Reading = NOT_SAMPLED
    """Share of its time that the lane's own processes took."""
    used_bytes: Reading = NOT_SAMPLED
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


@dataclass(frozen=True, slots=True)
class GpuUse:
    """What a lane uses of all its GPUs, and what others took of them."""

    parts: Mapping[str, GpuPart] = field(default_factory=dict)
    """By the key of the GPU."""
    used_bytes: Reading = NO_GPU
    """GPU memory on all of them, from `source`."""
    source: str = ""
    """`driver`, `only process`, `TensorFlow's allocator` (a lower bound) or `device change`."""
    allocated_bytes: int | None = None
    peak_bytes: int | None = None
    """What the framework has allocated now, and at its peak."""
    racing_busy_pct: Mean = field(default_factory=Mean)
    """How busy the GPUs were while the lane raced, with the work of all processes."""
    taken: Mapping[int, tuple[Taken, ...]] = field(default_factory=dict)
    """What others took of them while it raced, by index, since steady state began."""

    def with_allocated(self, now_bytes: int | None, peak_bytes: int | None) -> GpuUse:
        """Return the use with what the framework has allocated now, and at its peak."""
        if (now_bytes, peak_bytes) == (self.allocated_bytes, self.peak_bytes):
            return self
        return replace(self, allocated_bytes=now_bytes, peak_bytes=peak_bytes)

    def interrupted(self) -> GpuUse:
        """Return the use with a gap in the energy."""
        return replace(
            self, parts={key: replace(part, energy=part.energy.interrupted()) for key, part in self.parts.items()}
        )

    def restarted(self) -> GpuUse:
        """Return the use with no energy measured, and nothing taken by others."""
        parts = {key: replace(part, energy=GpuEnergy()) for key, part in self.parts.items()}
        return replace(self, parts=parts, taken={})

    def with_part(self, key: str, part: GpuPart, count: int, *, racing: bool) -> GpuUse:
        """Return the use after a sample of one of `count` GPUs.

        What the framework allocated on all of them counts where the driver does not list the lane's processes on
        every one.
        """
        parts = {**self.parts, key: part}
        sources = dict.fromkeys(one.source for one in parts.values())
        total, source = summed([one.used_bytes for one in parts.values()]), " + ".join(sources)
        peak_bytes = self.peak_bytes or self.allocated_bytes
        if len(parts) < count:
            total = NOT_ALL
        elif count > 1 and peak_bytes and not set(sources) <= {DRIVER, ONLY_PROCESS}:
            total, source = float(peak_bytes), ALLOCATOR
        busy = self.racing_busy_pct.plus(part.busy_pct) if racing else self.racing_busy_pct
        source = "" if isinstance(total, Missing) else source
        return replace(self, parts=parts, used_bytes=total, source=source, racing_busy_pct=busy)

    def training_w(self, count: int) -> Reading:
        """Return about what the lane's `count` GPUs draw together while it trains."""
        if count > 1 and len(self.parts) < count:
            return NOT_ALL
        if not self.parts:
            return GpuEnergy().training_w
        return summed([part.energy.training_w for part in self.parts.values()])


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

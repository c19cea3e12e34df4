"""What a lane uses of its GPUs, memory and time, as far as the driver tells. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tfmon.model.gpu_others import Taken
from tfmon.model.readings import NOT_SAMPLED, GpuSample, Missing, Reading, known, summed
from tfmon.model.records import replace
from tfmon.model.window_sums import Mean

DRIVER = "driver"
ONLY_PROCESS = "only process"
ALLOCATOR = "TensorFlow's allocator"
DEVICE_CHANGE = "device change"

NO_GPU = Missing("no GPU in this lane")
HIDDEN = Missing("hidden by the container (run it with --pid=host)")
NOT_LISTED = Missing("the driver lists no memory for this lane")
NO_SHARE = Missing("the driver lists no process of this lane")
NOT_ALL = Missing("not every GPU of this lane is sampled yet")


def used_bytes_of_lane(
    sample: GpuSample,
    pids: Collection[int],
    *,
    only_lane: bool,
    peak_bytes: int | None,
    before_bytes: float | None,
) -> tuple[Reading, str]:
    """Return the GPU memory of a lane and the source of the figure, the first that applies.

    `driver`: what it lists for the lane's processes. `only process`: in a container, where processes may have
    the host's numbers, the one listed process, if no other lane is on this GPU (`only_lane`). `TensorFlow's
    allocator`: its peak, a lower bound without the CUDA context. `device change`: what the whole GPU uses more
    than before the lane opened it (`before_bytes`), if no other lane is on it. A listed process without an amount
    says nothing: newer drivers list a container's own numbers that way.
    """
    own = [amount for pid in pids if (amount := sample.used_by_pid.get(pid))]
    if own:
        return float(sum(own)), DRIVER
    listed = [amount for amount in sample.used_by_pid.values() if amount]
    if sample.foreign_pids and only_lane and len(listed) == len(sample.used_by_pid) == 1:
        return float(listed[0]), ONLY_PROCESS
    if peak_bytes:
        return float(peak_bytes), ALLOCATOR
    used = sample.used_bytes
    if only_lane and before_bytes is not None and not isinstance(used, Missing) and used > before_bytes:
        return used - before_bytes, DEVICE_CHANGE
    if sample.no_processes_reason:
        return Missing(sample.no_processes_reason), ""
    return (HIDDEN if sample.foreign_pids else NOT_LISTED), ""


def busy_pct(sample: GpuSample, pids: Collection[int], *, only_lane: bool) -> Reading:
    """Return the share of the GPU's time that a lane's processes took, in percent."""
    shares = sample.busy_by_pid
    if isinstance(shares, Missing):
        return shares
    own = [shares[pid] for pid in pids if pid in shares]
    if own:
        return sum(own)
    if sample.foreign_pids and only_lane and len(shares) == 1:
        return next(iter(shares.values()))
    return HIDDEN if sample.foreign_pids else NO_SHARE


# ---------------- by GPU, and of all together


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

    def plus(
        self,
        sample: GpuSample,
        pids: Sequence[int],
        *,
        before: bool,
        only_lane: bool,
        peak_bytes: int | None,
    ) -> GpuPart:
        """Return the lane's use after a sample of the GPU.

        Args:
            sample: The GPU's.
            pids: Processes of the lane.
            before: Whether the lane has not opened the GPU yet.
            only_lane: Whether it is known that no other lane trains on it.
            peak_bytes: Memory that the framework allocated on this GPU; None for unknown.
        """
        first = self.used_before
        if first is None and before:
            first = known(sample.used_bytes)
        used, source = used_bytes_of_lane(
            sample,
            pids,
            only_lane=only_lane,
            peak_bytes=peak_bytes,
            before_bytes=None if sample.part_of else first,
        )
        lane_busy = busy_pct(sample, pids, only_lane=only_lane)
        return GpuPart(sample.busy_pct, lane_busy, used, source, first)


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


def counted(names: Sequence[str]) -> str:
    """Return the names of GPUs in a row, such as "2x NVIDIA H200" for two alike."""
    found = ((names.count(name), name) for name in dict.fromkeys(names))
    return " + ".join(f"{count}x {name}" if count > 1 else name for count, name in found)

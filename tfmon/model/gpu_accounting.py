"""What a lane uses of a GPU: memory, time and energy, as far as the driver tells. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tfmon.model.lane_statistics import Point
from tfmon.model.readings import GpuSample, Missing, Reading, known
from tfmon.model.records import replace

DRIVER = "driver"
ONLY_PROCESS = "only process"
ALLOCATOR = "TensorFlow's allocator"
DEVICE_CHANGE = "device change"

NO_GPU = Missing("no GPU in this lane")
HIDDEN = Missing("hidden by the container (run it with --pid=host)")
NOT_LISTED = Missing("the driver lists no memory for this lane")
NO_SHARE = Missing("the driver lists no process of this lane")


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


# ---------------- energy: what the GPU draws while the lane trains, separated from its rests


TOO_SHORT = Missing("not measured for long enough")
TOO_EVEN = Missing("cannot be separated yet from what the GPU draws between the lane's slices")
OF_WHOLE = Missing("only the whole GPU's power is known, of which this lane has an instance (MIG)")
TOGETHER = Missing("another lane trains on this GPU at the same time")

SHORTEST_S = 4.0
"""Training time below which no power is given."""
LONGEST_NS = 5_000_000_000
"""Samples further apart than this do not count: too much may have happened between them."""
MOST_WAITING = 120
_NO_REST = 0.02
_APART = 0.02


@dataclass(frozen=True, slots=True)
class Draw:
    """What a GPU used between two samples."""

    since_ns: int
    until_ns: int
    joules: float


@dataclass(frozen=True, slots=True)
class GpuEnergy:
    """Sums over the time between samples, while the lane raced and nothing about it changed."""

    last: tuple[int, float | None] | None = None
    """Stamp and energy counter of the latest sample."""
    waiting: tuple[Draw, ...] = ()
    """Draws for whose time the lane has not reported yet."""
    shared: bool = False
    """True when another lane trains on this GPU, too."""
    part: bool = False
    """True for an instance (MIG): the power is that of all instances."""
    draws: int = 0
    trained_s: float = 0.0
    rested_s: float = 0.0
    trained_sq: float = 0.0
    rested_sq: float = 0.0
    both: float = 0.0
    joules_trained: float = 0.0
    """Sum of energy times training time; with the next, what the two powers are solved from."""
    joules_rested: float = 0.0

    def plus(self, sample: GpuSample, points: Sequence[Point], *, shared: bool) -> GpuEnergy:
        """Return the sums with one more sample; `points` are the windows of the lane, the latest last."""
        counter = known(sample.energy_j)
        read_ns = next((one.at_ns for one in sample.slow if one.name == "power"), sample.at_ns)
        waiting = self.waiting
        if self.last is not None:
            drawn = _drawn(self.last, read_ns, sample, counter)
            waiting = (*waiting[-(MOST_WAITING - 1) :], drawn) if drawn is not None else waiting
        reported_ns = points[-1].at_ns if points else 0
        sums = replace(self, last=(read_ns, counter), shared=shared, part=bool(sample.part_of))
        for draw in waiting:
            if draw.until_ns <= reported_ns:
                sums = sums._counted(draw, _overlap_ns(points, draw) / 1e9)
        return replace(sums, waiting=tuple(draw for draw in waiting if draw.until_ns > reported_ns))

    def interrupted(self) -> GpuEnergy:
        """Return the sums with a gap: what is drawn until the next sample does not count."""
        return self if self.last is None else replace(self, last=None)

    @property
    def training_w(self) -> Reading:
        """Power of the whole GPU while the lane trains."""
        if self.part:
            return OF_WHOLE
        if self.trained_s < SHORTEST_S:
            return TOO_SHORT
        if self.rested_s < _NO_REST * self.trained_s:
            return TOGETHER if self.shared else self.joules_trained / self.trained_sq
        return self._solved()

    def _solved(self) -> Reading:
        """Return the power by least squares over the samples, with one power for training and one for rests."""
        determinant = self.trained_sq * self.rested_sq - self.both**2
        if determinant <= _APART * self.trained_sq * self.rested_sq:
            return TOO_EVEN
        power = (self.joules_trained * self.rested_sq - self.joules_rested * self.both) / determinant
        return power if power > 0 else TOO_EVEN

    def _counted(self, draw: Draw, trained_s: float) -> GpuEnergy:
        rested_s = max(0.0, (draw.until_ns - draw.since_ns) / 1e9 - trained_s)
        return replace(
            self,
            draws=self.draws + 1,
            trained_s=self.trained_s + trained_s,
            rested_s=self.rested_s + rested_s,
            trained_sq=self.trained_sq + trained_s**2,
            rested_sq=self.rested_sq + rested_s**2,
            both=self.both + trained_s * rested_s,
            joules_trained=self.joules_trained + draw.joules * trained_s,
            joules_rested=self.joules_rested + draw.joules * rested_s,
        )


def _drawn(last: tuple[int, float | None], until_ns: int, sample: GpuSample, counter: float | None) -> Draw | None:
    """Return the energy since the last sample: by its counter, else by its power now."""
    since_ns, before = last
    span_ns = until_ns - since_ns
    if not 0 < span_ns <= LONGEST_NS:
        return None
    if counter is not None and before is not None:
        return Draw(since_ns, until_ns, counter - before) if counter >= before else None
    power = known(sample.power_w)
    return None if power is None else Draw(since_ns, until_ns, power * span_ns / 1e9)


def _overlap_ns(points: Sequence[Point], draw: Draw) -> int:
    """Return how long the lane trained between two samples."""
    total = 0
    for point in reversed(points):
        if point.at_ns <= draw.since_ns:
            break
        total += max(0, min(point.at_ns, draw.until_ns) - max(point.at_ns - point.span_ns, draw.since_ns))
    return total

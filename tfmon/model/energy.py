"""What a lane draws from its GPU while it trains, told apart from what the GPU draws in its rests. Pure.

The GPU's counter is read once a second, and a second may hold slices of this lane, of another, and rests. So
the energy of each second is split by how long the lane trained in it: with many seconds of different shares,
two powers fit them all best (least squares), one while the lane trains and one while it does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tfmon.model.measures import Point
from tfmon.model.readings import Missing, Reading, known
from tfmon.model.samples import GpuSample

TOO_SHORT = Missing("not measured for long enough")
TOO_EVEN = Missing("cannot be told apart from what the GPU draws in the lane's rests yet")
TOGETHER = Missing("another lane trains on this GPU at the same time")

SHORTEST_S = 4.0
"""Training time below which nothing is told."""
LONGEST_NS = 5_000_000_000
"""Samples further apart than this say too little about what went on between them."""
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
    """Until the lane has told what it did in that time."""
    shared: bool = False
    """Another lane trains on this GPU, too."""
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
        waiting = self.waiting
        if self.last is not None:
            drawn = _drawn(self.last, sample, counter)
            waiting = (*waiting[-(MOST_WAITING - 1) :], drawn) if drawn is not None else waiting
        told_until_ns = points[-1].at_ns if points else 0
        sums = replace(self, last=(sample.at_ns, counter), shared=shared)
        for draw in waiting:
            if draw.until_ns <= told_until_ns:
                sums = sums._counted(draw, _overlap_ns(points, draw) / 1e9)
        return replace(sums, waiting=tuple(draw for draw in waiting if draw.until_ns > told_until_ns))

    def interrupted(self) -> GpuEnergy:
        """Return the sums without a sample to go on from: what is drawn until the next one does not count."""
        return self if self.last is None else replace(self, last=None)

    @property
    def training_w(self) -> Reading:
        """Power of the GPU while the lane trains, by whomever it is drawn."""
        if self.trained_s < SHORTEST_S:
            return TOO_SHORT
        if self.rested_s < _NO_REST * self.trained_s:
            return TOGETHER if self.shared else self.joules_trained / self.trained_sq
        return self._solved(self.joules_trained, self.rested_sq, self.joules_rested)

    @property
    def resting_w(self) -> Reading:
        """Power of the GPU while the lane does not train."""
        if self.rested_s < SHORTEST_S or self.trained_s < SHORTEST_S:
            return TOO_SHORT
        return self._solved(self.joules_rested, self.trained_sq, self.joules_trained)

    def _solved(self, own: float, other_sq: float, other: float) -> Reading:
        determinant = self.trained_sq * self.rested_sq - self.both**2
        if determinant <= _APART * self.trained_sq * self.rested_sq:
            return TOO_EVEN
        power = (own * other_sq - other * self.both) / determinant
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


def _drawn(last: tuple[int, float | None], sample: GpuSample, counter: float | None) -> Draw | None:
    """Return what the GPU used since the last sample: by its counter, else by its power now."""
    since_ns, before = last
    span_ns = sample.at_ns - since_ns
    if not 0 < span_ns <= LONGEST_NS:
        return None
    if counter is not None and before is not None:
        return Draw(since_ns, sample.at_ns, counter - before) if counter >= before else None
    power = known(sample.power_w)
    return None if power is None else Draw(since_ns, sample.at_ns, power * span_ns / 1e9)


def _overlap_ns(points: Sequence[Point], draw: Draw) -> int:
    """Return how long the lane trained between two samples."""
    total = 0
    for point in reversed(points):
        if point.at_ns <= draw.since_ns:
            break
        total += max(0, min(point.at_ns, draw.until_ns) - max(point.at_ns - point.span_ns, draw.since_ns))
    return total

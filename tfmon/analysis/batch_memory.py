"""Predicts which batch sizes fit in a GPU's memory, from the peaks at two or more sizes.

A larger batch needs at least the extrapolation of the peaks, and at most memory in proportion to its size.
"""

from __future__ import annotations

import itertools
from typing import Any

from tfmon import units
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.lane_state import LaneState
from tfmon.model.lane_use import ALLOCATOR
from tfmon.model.readings import Missing, known

LEAST_SIZES = 2
MOST_DOUBLINGS = 24
NOT_ONE_GPU = Missing("predicted only for lanes on one GPU: on a CPU, two batch sizes do not predict a third")
NOT_FREE = Missing("the driver does not say how much GPU memory is free")


@dataclass(frozen=True, slots=True)
class BatchMemory:
    """The memory that batch sizes need, and the available memory."""

    measured: tuple[tuple[int, int], ...]
    """Batch sizes with their peaks in bytes, the smallest first."""
    sure_bytes: float
    """Certainly available: the lane's peak and the unused memory."""
    most_bytes: float | None
    """Available at most: used and unused memory."""
    most_examples: int | None = None

    def needs(self, size: int) -> tuple[float, float]:
        """Return the least and most bytes that a batch size needs."""
        largest, peak = self.measured[-1]
        more = max(0, size - largest)
        pairs = itertools.pairwise(self.measured)
        slopes = [(high - low) / (larger - smaller) for (smaller, low), (larger, high) in pairs]
        return peak + more * min(slopes), peak + more * max(*slopes, peak / largest)

    def fits(self, size: int) -> bool | None:
        """Return whether a size fits, if certain."""
        least, most = self.needs(size)
        if most <= self.sure_bytes:
            return True
        return False if self.most_bytes is not None and least > self.most_bytes else None

    @property
    def sizes(self) -> tuple[int, int | None]:
        """The largest size that fits, and its double."""
        size = self.measured[-1][0]
        for _ in range(MOST_DOUBLINGS):
            if self.most_examples is not None and 2 * size > self.most_examples:
                return size, None
            if not self.fits(2 * size):
                return size, 2 * size
            size *= 2
        return size, None

    def amount(self, size: int) -> str:
        """Return the memory of a size as text."""
        least, most = map(units.memory, self.needs(size))
        has = units.memory(self.sure_bytes if self.most_bytes is None else self.most_bytes)
        return f"about {least if least == most else f'{least} to {most}'} of {has}"

    @property
    def text(self) -> str:
        """The sizes that fit as text."""
        fits, beyond = self.sizes
        by = " and ".join(str(size) for size, _ in self.measured[-LEAST_SIZES:])
        text = f"batch {fits} fits ({self.amount(fits)})"
        if beyond is None:
            return f"{text}, and the data has not enough for {2 * fits}; from the peaks at {by}"
        verb = "does not" if self.fits(beyond) is False else "may not"
        return f"{text}, {beyond} {verb} ({self.amount(beyond)}); from the peaks at {by}"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        fits, beyond = self.sizes
        return {
            "id": "batch_fits",
            "fits": fits,
            "fits_bytes": self.needs(fits),
            "next": beyond,
            "next_fits": None if beyond is None else self.fits(beyond),
            "next_bytes": None if beyond is None else self.needs(beyond),
            "available_bytes": (self.sure_bytes, self.most_bytes),
            "measured_bytes": {str(size): peak for size, peak in self.measured},
            "text": self.text,
        }


def batch_memory(lane: LaneState) -> BatchMemory | Missing:
    """Return the memory of batch sizes, or why it is unknown."""
    if lane.spec.kind != "gpu" or lane.spec.devices > 1:
        return NOT_ONE_GPU
    use = lane.gpu_use
    measured = tuple(sorted(use.batch_peaks.by_size.items()))
    if len(measured) < LEAST_SIZES:
        needs = "it needs peaks at two batch sizes, each larger than all before"
        return Missing(f"{needs}; there are {len(measured)}")
    free = next((part.free_bytes for part in use.parts.values()), None)
    if free is None:
        return NOT_FREE
    used, peak = known(use.used_bytes), use.peak_bytes or measured[-1][1]
    most_bytes = None if used is None or used < peak or use.source == ALLOCATOR else free + used
    return BatchMemory(measured, free + peak, most_bytes, lane.process.data_examples)


def warning_of(lane: LaneState, size: object) -> str:
    """Return a warning if a batch size may not fit."""
    memory = batch_memory(lane)
    if isinstance(memory, Missing) or not isinstance(size, int) or memory.fits(size):
        return ""
    return f"{size} {'does' if memory.fits(size) is False else 'may'} not fit in GPU memory: {memory.amount(size)}"

"""Histograms of step times with common bins."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TypeVar

Key = TypeVar("Key")
BINS_PER_OCTAVE = 64


def bin_of(duration_ns: float) -> int:
    """Return the index of a duration's bin."""
    return math.floor(math.log2(max(duration_ns, 1.0)) * BINS_PER_OCTAVE)


def middle_ns(bin_index: int) -> float:
    """Return the geometric middle of a bin."""
    return float(2.0 ** ((bin_index + 0.5) / BINS_PER_OCTAVE))


def count(durations_ns: Iterable[float]) -> dict[int, int]:
    """Count durations into bins."""
    bins: dict[int, int] = {}
    for duration_ns in durations_ns:
        index = bin_of(duration_ns)
        bins[index] = bins.get(index, 0) + 1
    return bins


def add(left: Mapping[Key, int], right: Mapping[Key, int], sign: int = 1) -> dict[Key, int]:
    """Return the sums by key, or the differences."""
    total = dict(left)
    for index, amount in right.items():
        total[index] = total.get(index, 0) + sign * amount
    return total if all(total.values()) else {index: amount for index, amount in total.items() if amount}


def quantile_ns(bins: Mapping[int, int], fraction: float) -> float | None:
    """Return a quantile (nearest rank), to within 0.55 %."""
    rank = max(1, math.ceil(fraction * sum(bins.values())))
    seen = 0
    for index in sorted(bins):
        seen += bins[index]
        if seen >= rank:
            return middle_ns(index)
    return None


def quantile_ms(bins: Mapping[int, int], fraction: float) -> float | None:
    """Return a quantile in milliseconds."""
    duration_ns = quantile_ns(bins, fraction)
    return None if duration_ns is None else duration_ns / 1e6

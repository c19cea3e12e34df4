"""The trimmed mean, without the lowest and the highest fifth, and how sure it is. Pure.

Its standard error is Tukey and McLaughlin's, with winsorised variance. A few disturbed slices hardly move it or
widen its interval, unlike those of the plain mean.

Source: Tukey, McLaughlin (1963), Sankhyā A 25. A test compares with `scipy.stats.mstats.trimmed_mean_ci`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import median, stdev

from tfmon.analysis.intervals import NONE, Looks
from tfmon.model.readings import Estimate

TRIM = 0.2
"""Share of the values cut off at each end."""
LEAST_PAIRS = 5
"""Fewer slices of a lane give no interval, and fewer pairs of a process nothing about it."""
FEWEST, UNTRIMMED = 2, 8
"""Pairs of two lanes from which their ratio has an interval, and from which on some are cut off."""
STRETCHES = 5
"""Stretches of a race whose scatter tells of slow changes: batch means, with Student's t."""
WIDEST = math.log(1_000)
"""Half an interval from which on it says nothing, so that there is none."""
AT_THE_END = Looks()
"""One look, at the end."""


@dataclass(frozen=True, slots=True)
class Center:
    """A trimmed mean."""

    value: float
    error: float
    """Its standard error."""
    degrees: int
    """Degrees of freedom of the standard error."""
    count: int
    """Values behind it."""
    estimated: int = 0
    """Figures besides the mean that were estimated from them."""

    def reach(self, looks: Looks = AT_THE_END) -> float:
        """Return half the 95 % interval; infinite where there is none yet."""
        errors = looks.errors(self.count - self.estimated, self.degrees)
        return errors * self.error if errors < NONE else NONE

    def estimate(self, looks: Looks = AT_THE_END) -> Estimate | None:
        """Return the mean with its interval, None where there is none yet."""
        return estimate_of(self.value, self.reach(looks), self.count, looks)


def trimmed(values: Collection[float], estimated: int = 0, *, few: bool = False) -> Center | None:
    """Return the trimmed mean of values; None for fewer than `LEAST_PAIRS`.

    Args:
        values: The values.
        estimated: How many figures besides the mean were estimated from them, and taken out.
        few: Whether `FEWEST` values do; fewer than `UNTRIMMED` are then all kept.
    """
    count = len(values)
    if count < (FEWEST if few else LEAST_PAIRS):
        return None
    ordered = sorted(values)
    cut = 0 if few and count < UNTRIMMED else int(TRIM * count)
    kept = ordered[cut : count - cut]
    low, high, sum_kept = kept[0], kept[-1], math.fsum(kept)
    mean = sum_kept / len(kept)
    middle = (sum_kept + cut * (low + high)) / count  # The mean of the winsorised values.
    squares = math.fsum([(value - middle) ** 2 for value in kept])
    variance = (squares + cut * ((low - middle) ** 2 + (high - middle) ** 2)) / (count - 1 - estimated)
    error = math.sqrt(variance / count) / (1 - 2 * TRIM if cut or not few else 1)
    if not math.isfinite(error):
        return None
    return Center(mean, error, len(kept) - 1 - estimated, count, estimated)


def trimmed_in_time(values: Sequence[float], *, few: bool = False) -> Center | None:
    """Return the trimmed mean of values in their order, as unsure as slow changes of the machine make it.

    Slices that follow each other are alike where other machines share the hardware. So the scatter of a few long
    stretches tells of slow changes, and the wider interval counts. None from too few values, see `trimmed`.
    """
    center = trimmed(values, few=few)
    if center is None or len(values) < 2 * STRETCHES:
        return center
    edges = [round(place * len(values) / STRETCHES) for place in range(STRETCHES + 1)]
    middles = [median(values[edges[place] : edges[place + 1]]) for place in range(STRETCHES)]
    slow = Center(center.value, stdev(middles) / math.sqrt(STRETCHES), STRETCHES - 1, center.count)
    return max(center, slow, key=Center.reach)


def estimate_of(value: float, reach: float, pairs: int, looks: Looks) -> Estimate | None:
    """Return a value with its interval; None for one so wide that it says nothing."""
    return Estimate(value, value - reach, value + reach, pairs, looks.kind) if reach < WIDEST else None

"""The width of a 95 % interval for each use, and robust means with such intervals.

An interval for one look is wrong too often if it is looked at all the time. So there are three kinds:

- **always valid**: holds at all looks together. It inverts a test that weighs "no difference" against a difference
  of `EFFECT_VARIANCE`. Early on, Student's t is used, with a twentieth of the error.
- **spending**: holds at all looks within a known length. Most of the error is kept for the end.
- **fixed**: holds at one look, at the end of a known length.

Sources: Wang, Ramdas (2023), arXiv 2310.03722; O'Brien, Fleming (1979), Biometrics 35; Lan, DeMets (1983),
Biometrika 70.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from functools import lru_cache
from statistics import NormalDist, median, stdev
from typing import TYPE_CHECKING, Any

from tfmon.model.fast_dataclass import dataclass
from tfmon.model.readings import ALWAYS_VALID, FIXED, SPENDING, Estimate, IntervalKind

ERROR = 0.05
"""Probability that an interval misses the truth."""
EFFECT_VARIANCE = 0.2
"""Expected differences, in units of the pairs' scatter."""
EARLY_ERROR = 0.2
"""Share of the error of `spending` for an always valid interval."""
FEW, MANY, FEW_ERROR = 3, 16, 0.05
"""Range of pairs of early intervals, and their share of the error."""
NONE = math.inf
"""Standard errors of an interval that does not exist."""
_FARTHEST = 37.0
_USELESS = 1e9


@dataclass(frozen=True, slots=True)
class Looks:
    """How an interval is looked at."""

    kind: IntervalKind = FIXED
    share: float = 1.0
    """Elapsed share of the length, for `spending`."""
    choices: int = 1
    """Comparisons behind one answer (Bonferroni)."""

    @property
    def error(self) -> float:
        """Probability that one interval misses the truth."""
        return ERROR / self.choices

    def errors(self, pairs: int, degrees: float) -> float:
        """Return the standard errors to either side, or `NONE` from too few pairs."""
        if self.kind == FIXED:
            return student(self.error, degrees)
        if pairs < FEW:
            return NONE
        error = self.error * (EARLY_ERROR if self.kind == SPENDING else 1)
        early = student(FEW_ERROR * error / 2 ** (pairs - 2), degrees) if pairs <= MANY else NONE
        valid = min(always_valid(pairs, error), early)
        if self.kind == ALWAYS_VALID:
            return valid
        return min(valid, spending(self.share, degrees, (1 - EARLY_ERROR) * self.error))


def always_valid(pairs: int, error: float = ERROR) -> float:
    """Return the standard errors that are valid at every number of pairs.

    At this factor the Bayes factor of a normal prior of the effect reaches 1/error.
    """
    if pairs < 2:
        return NONE
    shrunk = 1 / (1 + pairs * EFFECT_VARIANCE)
    limit = math.pow(1 / (error * math.sqrt(shrunk)), 2 / pairs)
    if limit * shrunk >= 1:
        return NONE
    return math.sqrt((pairs - 1) * (limit - 1) / (1 - limit * shrunk))


def spending(share: float, degrees: float, error: float = ERROR) -> float:
    """Return O'Brien and Fleming's boundary in standard errors, with Student's t."""
    reach = NormalDist().inv_cdf(1 - error / 4) / math.sqrt(share) if share > 0 else NONE
    return student(math.erfc(reach / math.sqrt(2)), degrees) if reach < _FARTHEST else NONE


@lru_cache(maxsize=8192)
def student(error: float, degrees: float) -> float:
    """Return the two-sided quantile of Student's t distribution.

    Newton's method for the concave logarithm of the tail over t. Accurate to 11 digits.
    """
    density = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2) - math.log(degrees * math.pi) / 2
    goal, z = math.log(error), NormalDist().inv_cdf(1 - error / 2) if error > 1e-12 else 7.0
    t = z + (z**3 + z) / (4 * degrees)  # The first terms of its expansion in 1/degrees.
    for _ in range(100):
        tail = _tail(t, degrees) if t < _USELESS else 0.0
        if tail <= 0:
            return NONE
        slope = 2 * t * math.exp(density - (degrees + 1) / 2 * math.log1p(t * t / degrees)) / tail
        step = (math.log(tail) - goal) / slope
        t *= math.exp(step)
        if abs(step) < 1e-7:  # It converges quadratically.
            break
    return t


def _tail(t: float, degrees: float) -> float:
    """Source: Abramowitz, Stegun (1964), 26.5.8 and 26.7.1; Lentz's method for the continued fraction."""
    x = degrees / (degrees + t * t)
    a, b = degrees / 2, 0.5
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta(1 - x, b, a)
    return _beta(x, a, b)


def _beta(x: float, a: float, b: float) -> float:
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    above, below = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    fraction = below
    for m in range(1, 1000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            below = 1 / (1 + term * below)
            above = 1 + term / above
            change = above * below
            fraction *= change
        if abs(change - 1) < 1e-13:
            break
    return math.exp(log_front) * fraction / a


TRIM = 0.2
LEAST_PAIRS = 5
FEWEST, UNTRIMMED = 2, 8
"""Minimum pairs with `few`, and for trimming."""
STRETCHES = 5
"""Number of batch means, for slow changes."""
WIDEST = math.log(1_000)
AT_THE_END, AT_ANY_TIME = Looks(), Looks(ALWAYS_VALID)


@dataclass(frozen=True, slots=True)
class Center:
    """A trimmed mean of logarithms. Source: Tukey, McLaughlin (1963), Sankhyā A 25."""

    value: float
    error: float
    degrees: int
    count: int
    estimated: int = 0

    def reach(self, looks: Looks = AT_THE_END) -> float:
        """Return half the 95 % interval. Infinite without one."""
        errors = looks.errors(self.count - self.estimated, self.degrees)
        return errors * self.error if errors < NONE else NONE

    def estimate(self, looks: Looks = AT_THE_END) -> Estimate | None:
        """Return the exponential of the mean, with its interval."""
        return estimate_of(self.value, self.reach(looks), self.count, looks)


def trimmed(values: Collection[float], estimated: int = 0, *, few: bool = False) -> Center | None:
    """Return the trimmed mean of values. `None` for fewer than `LEAST_PAIRS`.

    Args:
        estimated: How many other figures were estimated from them.
        few: Whether `FEWEST` values suffice; fewer than `UNTRIMMED` are not trimmed.
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
    """Return the trimmed mean of successive values, with the wider of two intervals.

    Successive slices are alike on shared hardware, so a few long stretches have more scatter.
    """
    center = trimmed(values, few=few)
    if center is None or len(values) < 2 * STRETCHES:
        return center
    edges = [round(index * len(values) / STRETCHES) for index in range(STRETCHES + 1)]
    middles = [median(values[edges[index] : edges[index + 1]]) for index in range(STRETCHES)]
    slow = Center(center.value, stdev(middles) / math.sqrt(STRETCHES), STRETCHES - 1, center.count)
    return max(center, slow, key=Center.reach)


def estimate_of(value: float, reach: float, pairs: int, looks: Looks) -> Estimate | None:
    """Return the exponential of a value with its interval, unless that is too wide."""
    if reach >= WIDEST:
        return None
    return Estimate(math.exp(value), math.exp(value - reach), math.exp(value + reach), pairs, looks.kind)


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

TAILS = 2.0
"""Degrees of freedom. Fewer degrees reduce the weight of outliers."""
SCALE = 0.01
"""Median of the prior: the difference of equal races on an idle machine."""
SCALES = (0.0005, 1.0, 30)
"""Smallest, largest and number of steps, in equal ratios."""
CENTERS = 1_000
CAUTION = 0.6
"""Races may have thinner tails. Intervals of 3 and 5 races a side then held the truth in 93 to 99 % of
simulations."""
LEAST_SPREAD = 0.02


def shift(first: Sequence[float], second: Sequence[float], error: float) -> tuple[float, ...]:
    """Return the second less the first group of logarithms of speeds, and the ends of the interval.

    Some equal races are 10 to 50 % slower, so both groups follow Student's t with few degrees of freedom.
    Sources: Lange, Little, Taylor (1989), JASA 84; Gelman (2006), Bayesian Analysis 1, for the half-Cauchy prior
    of the scale.
    """
    import numpy as np

    middles = median(first), median(second)
    spread = max(LEAST_SPREAD, max(first) - min(first), max(second) - min(second))
    centers, scales = np.linspace(-3 * spread, 3 * spread, CENTERS), np.geomspace(*SCALES)
    first_density = _likelihood(np.subtract(first, middles[0]), centers, scales)
    second_density = _likelihood(np.subtract(second, middles[1]), centers, scales)
    prior = scales / (1 + (scales / SCALE) ** 2)  # half-Cauchy, for scales in equal ratios
    density = sum(
        share * np.convolve(b, a[::-1]) for share, a, b in zip(prior, first_density, second_density, strict=True)
    )
    differences = np.linspace(-6 * spread, 6 * spread, 2 * CENTERS - 1) + middles[1] - middles[0]
    below = (np.cumsum(density) - density / 2) / np.sum(density)
    tail = CAUTION * error / 2
    return tuple(float(np.interp(share, below, differences)) for share in (0.5, tail, 1 - tail))


def _likelihood(values: Floats, centers: Floats, scales: Floats) -> Floats:
    import numpy as np

    total: Any = -len(values) * np.log(scales)[:, None]
    for value in values:
        total = total - (TAILS + 1) / 2 * np.log1p(((value - centers) / scales[:, None]) ** 2 / TAILS)
    return np.asarray(np.exp(total - total.max()))

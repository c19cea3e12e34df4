"""How wide a 95 % interval must be for how it is used. Pure.

An interval for one look at the end is wrong far more often than in 5 % of cases when it is looked at all the time,
and the race ends when somebody likes what he sees. So there are three kinds:

- **always valid**: holds at all looks together, however many there are and whenever the race ends. It inverts a
  test that weighs "no difference" against a difference of `EFFECT_VARIANCE` in units of the scatter of the pairs.
  Of the first pairs, from which it says little yet, Student's t does: it has a twentieth of the error more, and
  spends half of what is left at each look.
- **spending**: holds at all looks within a length that is known before. Most of the error is kept for the end
  (O'Brien and Fleming), a part of it is spent by an always valid interval, so that a large difference shows early.
- **fixed**: holds at one look, at the end of a length that is known before.

Sources: Wang, Ramdas (2023), arXiv 2310.03722; O'Brien, Fleming (1979), Biometrics 35; Lan, DeMets (1983),
Biometrika 70.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

from tfmon.model.readings import ALWAYS_VALID, FIXED, SPENDING, IntervalKind

ERROR = 0.05
"""How often an interval may miss the truth."""
EFFECT_VARIANCE = 0.2
"""Variance of the differences that an always valid interval is made for, in units of the pairs' scatter."""
EARLY_ERROR = 0.2
"""Share of the error that `spending` leaves to an always valid interval."""
FEW, MANY, FEW_ERROR = 3, 16, 0.05
"""From so many pairs on and up to so many, an early interval is looked at, with this share of the error."""
NONE = math.inf
"""So many standard errors where there is no interval yet."""
_FARTHEST = 37.0
"""Standard errors of a normal distribution beyond which the tail is less than a float can hold."""
_USELESS = 1e9
"""An interval of so many standard errors says nothing."""


@dataclass(frozen=True, slots=True)
class Looks:
    """How an interval is looked at."""

    kind: IntervalKind = FIXED
    share: float = 1.0
    """Share of the known length that has passed; only `spending` needs it."""
    choices: int = 1
    """From how many comparisons one answer is chosen; each may err so much more rarely (Bonferroni)."""

    @property
    def error(self) -> float:
        """How often one interval may miss the truth."""
        return ERROR / self.choices

    def errors(self, pairs: int, degrees: float) -> float:
        """Return how many standard errors the interval reaches to either side; `NONE` from too few pairs.

        Args:
            pairs: Values behind the mean.
            degrees: Degrees of freedom of its standard error.
        """
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
    """Return the factor of the standard error that holds at every number of pairs; `NONE` from too few.

    It is where the Bayes factor of a normal prior of the effect against no effect reaches 1/error; that is a
    martingale, so it ever gets there in at most that share of cases.
    """
    if pairs < 2:
        return NONE
    shrunk = 1 / (1 + pairs * EFFECT_VARIANCE)
    limit = math.pow(1 / (error * math.sqrt(shrunk)), 2 / pairs)
    if limit * shrunk >= 1:
        return NONE
    return math.sqrt((pairs - 1) * (limit - 1) / (1 - limit * shrunk))


def spending(share: float, degrees: float, error: float = ERROR) -> float:
    """Return the factor of the standard error after a share of the length: O'Brien and Fleming's boundary.

    A Brownian motion leaves it with probability `error` until the end. What it allows at a time is taken from
    Student's t distribution, as the scatter is estimated.
    """
    reach = NormalDist().inv_cdf(1 - error / 4) / math.sqrt(share) if share > 0 else NONE
    return student(math.erfc(reach / math.sqrt(2)), degrees) if reach < _FARTHEST else NONE


@lru_cache(maxsize=8192)
def student(error: float, degrees: float) -> float:
    """Return how far Student's t distribution is from 0 in all but this share of cases, on either side.

    Newton's method for the logarithm of the tail over that of t. This is concave: the first step passes the root,
    all others come down to it. Accurate to 11 digits.
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
    """Return the probability that Student's t is beyond t on either side, also where it is tiny.

    It is the incomplete beta function, by its continued fraction.
    Source: Abramowitz, Stegun (1964), 26.5.8 and 26.7.1; Lentz's method.
    """
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

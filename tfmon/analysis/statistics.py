"""Throughput of lanes and their ratios from slices, each with a 95 % interval that holds on a noisy machine.

Slices of one round are measured right after each other, so each round gives one ratio, which slow changes (heat,
other load) hardly touch. The centre is the trimmed mean of the logarithms, without the lowest and the highest
fifth. The interval is Tukey and McLaughlin's for a trimmed mean: a Student-t interval with winsorised variance. A
few disturbed slices hardly widen it, unlike the plain t interval, and it holds its 95 % from few pairs on, unlike
the median's bootstrap.

All functions take logarithms by round, see `log_speeds`, so that a lane's are computed once for all its figures.

Source: Tukey, McLaughlin (1963), Sankhyā A 25. A test compares with `scipy.stats.mstats.trimmed_mean_ci`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeAlias

from tfmon.model.lane_statistics import SliceSpeed
from tfmon.model.readings import Estimate

LogSpeeds: TypeAlias = Mapping[int, float]
"""Natural logarithm of a lane's throughput in each slice, by its round. Units: throughput in examples/s."""

TRIM = 0.2
"""Share of the values cut off at each end."""
BETWEEN_PROCESSES_SD = 0.008
"""Between-process standard deviation: that of the log ratio of two lanes that do the same.

Two equal processes differ in speed as long as they live, by how their memory is laid out, and no number of pairs
averages that out. It was 0.006 in 20 races of 15 s of identical lanes on 2 cores, and up to 0.014 in one race.
Source: `tests/benchmarks/fairness.py identical`.
"""
BETWEEN_PROCESSES_95 = 1.96 * BETWEEN_PROCESSES_SD
"""Half the interval that is left after any number of pairs."""
LEAST_PAIRS = 5
"""Fewer pairs give no interval."""
DRIFT = 0.05
"""Change of throughput within a race, or distance of a pair from the others, from which on it is reported."""
FAR = 3.5 / 0.6745
"""Median absolute deviations from which on a value is an outlier: a modified z-score over 3.5.

Source: Iglewicz, Hoaglin (1993), How to Detect and Handle Outliers.
"""


@dataclass(frozen=True, slots=True)
class Throughput:
    """The throughput of one lane, computed once for all figures it is part of."""

    slices: tuple[SliceSpeed, ...]
    logs: LogSpeeds
    speed: Estimate | None
    """In examples/s; None from too few slices."""
    drift: float | None
    """See `drift`."""

    @classmethod
    def of(cls, slices: tuple[SliceSpeed, ...]) -> Throughput:
        """Return the throughput of a lane that ran these slices."""
        logs = log_speeds(slices)
        return cls(slices, logs, speed(logs), drift(logs))


def log_speeds(slices: Iterable[SliceSpeed]) -> dict[int, float]:
    """Return the logarithms of the slices in which anything was trained."""
    log = math.log
    return {one.round: log(one.examples / one.span_ns * 1e9) for one in slices if one.examples > 0}


def ratio(first: LogSpeeds, second: LogSpeeds) -> Estimate | None:
    """Return the first lane's throughput over the second's, from the rounds both ran in; None from too few.

    The interval includes what two equal processes differ by.
    """
    return _exponential(_between_processes(trimmed(_log_ratios(first, second))))


def gain(pairs: Sequence[tuple[SliceSpeed, SliceSpeed]], *, one_process: bool = True) -> Estimate | None:
    """Return one lane's throughput under new settings over that under the old ones; None from too few pairs.

    A pair is a slice under the old settings and one under the new ones, soon after each other. Without
    `one_process` each setting has its own process, and the interval includes what two equal processes differ by.
    """
    logs = trimmed(
        [math.log(new.examples_per_s / old.examples_per_s) for old, new in pairs if old.examples * new.examples]
    )
    return _exponential(logs if one_process else _between_processes(logs))


def speed(lane: LogSpeeds) -> Estimate | None:
    """Return a lane's throughput over its slices, in examples/s; None from too few."""
    return _exponential(trimmed(lane.values()))


def drift(lane: LogSpeeds) -> float | None:
    """Return the throughput in the last third of the slices over that in the first, if it clearly changed.

    None unless they differ by more than `DRIFT` and their intervals do not overlap.
    """
    values = list(lane.values())
    third = len(values) // 3
    early, late = trimmed(values[:third]), trimmed(values[len(values) - third :])
    if early is None or late is None:
        return None
    apart = early.high < late.low or late.high < early.low
    change = math.exp(late.value - early.value)
    return change if apart and abs(change - 1) > DRIFT else None


def outliers(first: LogSpeeds, second: LogSpeeds) -> int:
    """Return how many pairs lie far from the others (see `FAR`), and off by more than `DRIFT`."""
    logs = _log_ratios(first, second)
    if len(logs) < LEAST_PAIRS:
        return 0
    middle = median(logs)
    far = max(FAR * median([abs(value - middle) for value in logs]), math.log1p(DRIFT))
    return sum(abs(value - middle) > far for value in logs)


def trimmed(values: Collection[float]) -> Estimate | None:
    """Return the trimmed mean of values with its 95 % interval; None for fewer than `LEAST_PAIRS`."""
    count = len(values)
    if count < LEAST_PAIRS:
        return None
    ordered = sorted(values)
    cut = int(TRIM * count)
    kept = ordered[cut : count - cut]
    low, high, sum_kept = kept[0], kept[-1], math.fsum(kept)
    mean = sum_kept / len(kept)
    middle = (sum_kept + cut * (low + high)) / count  # The mean of the winsorised values.
    squares = math.fsum([(value - middle) ** 2 for value in kept])
    variance = (squares + cut * ((low - middle) ** 2 + (high - middle) ** 2)) / (count - 1)
    error = math.sqrt(variance / count) / (1 - 2 * TRIM)
    half = student_95(len(kept) - 1) * error
    return Estimate(mean, mean - half, mean + half, count) if math.isfinite(half) else None


def student_95(degrees: int) -> float:
    """Return how many standard errors Student's t distribution holds in 95 % of cases on either side.

    Up to 30 degrees of freedom the distribution is a finite sum, solved by Newton's method to 12 digits; above,
    the Cornish-Fisher expansion to the fourth order is off by less than 2e-8.

    Source: Abramowitz, Stegun (1964), 26.7.3, 26.7.4 and 26.7.5.
    """
    if degrees > 30:
        return _NORMAL_95 + math.fsum(term / degrees**power for power, term in enumerate(_EXPANSION, 1))
    density = 2 * math.gamma((degrees + 1) / 2) / (math.gamma(degrees / 2) * math.sqrt(math.pi * degrees))
    t = _NORMAL_95
    for _ in range(50):  # The probability is concave, so Newton's method rises to the root and never passes it.
        missing = 0.95 - _probability(t, degrees)
        if missing < 1e-14:
            break
        t += missing / (density * math.pow(1 + t * t / degrees, -(degrees + 1) / 2))
    return t


def _probability(t: float, degrees: int) -> float:
    """Return the probability that Student's t lies between -t and t."""
    angle = math.atan(t / math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    term = cosine if odd else 1.0
    total = term if degrees > 1 else 0.0
    for number in range(2 + odd, degrees - 1, 2):
        term *= cosine * cosine * (number - 1) / number
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


_NORMAL_95 = 1.959963984540054
_EXPANSION = (2.3722712303, 2.8224986157, 2.5558496795, 1.5895340534)


def _log_ratios(first: LogSpeeds, second: LogSpeeds) -> list[float]:
    return [log - second[number] for number, log in first.items() if number in second]


def _between_processes(logs: Estimate | None) -> Estimate | None:
    if logs is None:
        return None
    half = math.hypot(logs.value - logs.low, BETWEEN_PROCESSES_95)
    return Estimate(logs.value, logs.value - half, logs.value + half, logs.pairs)


def _exponential(logs: Estimate | None) -> Estimate | None:
    if logs is None:
        return None
    return Estimate(math.exp(logs.value), math.exp(logs.low), math.exp(logs.high), logs.pairs)

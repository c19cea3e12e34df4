"""The ratio of two lanes from their slices, with an interval.

Slices of the same round were measured one right after the other, so each round gives one ratio that what
drifts slowly (heat, other load) hardly touches. The centre is the mean of the log ratios without the lowest
and the highest fifth, and the interval is Tukey and McLaughlin's for that trimmed mean, a Student-t interval
with winsorised variance: against the plain t it is not thrown off by the odd disturbed slice, and against the
median's bootstrap it holds its 95 % from few pairs on.

Source: Tukey, McLaughlin (1963), Sankhyā A 25. `scipy.stats.mstats.trimmed_mean_ci` gives the same figures, as a
test shows; on a screen that asks twice a second its masked arrays, and loading them, took more than all else.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from statistics import fmean, median
from typing import TypeVar

from tfmon.model.lane_statistics import SliceSpeed
from tfmon.model.readings import Estimate

_Result = TypeVar("_Result")

TRIM = 0.2
"""Share of the pairs left out at each end."""
BETWEEN_PROCESSES = 0.008
"""Standard deviation of the log ratio of two lanes that do the same.

Two processes differ in speed for as long as they live, by how their memory happens to lie, and no number of pairs
averages that out. In 20 races of 15 s of identical lanes on 2 cores it was 0.006, and up to 0.014 in one race.
Source: `tests/benchmarks/fairness.py identical`.
"""
BETWEEN_PROCESSES_95 = 1.96 * BETWEEN_PROCESSES
"""Half the interval that is left after any number of pairs."""
LEAST_PAIRS = 5
"""Fewer pairs than these give no interval."""
MOST_REMEMBERED = 200
"""More values than these are not kept to tell whether they are the same."""
DRIFT = 0.05
"""A change of throughput within a race, or a pair so far off the others, that is worth a word."""


class _Slices:
    """Slices of a lane, equal only to the very same: so results can be remembered without looking at each one."""

    def __init__(self, slices: Sequence[SliceSpeed]) -> None:
        self.slices = slices

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Slices) and self.slices is other.slices

    def __hash__(self) -> int:
        return id(self.slices)


def _remembered(function: Callable[..., _Result]) -> Callable[..., _Result]:
    """Compute once for the same slices: a screen asks twice a second, and most lanes wait for their turn.

    Slices are told apart by identity, so only tuples, which never change, are remembered.
    """
    kept = functools.lru_cache(maxsize=24)(lambda *lanes: function(*(lane.slices for lane in lanes)))

    @functools.wraps(function)
    def remembered(*lanes: Sequence[SliceSpeed]) -> _Result:
        if all(isinstance(slices, tuple) for slices in lanes):
            return kept(*map(_Slices, lanes))
        return function(*lanes)

    return remembered


@_remembered
def ratio(first: Sequence[SliceSpeed], second: Sequence[SliceSpeed]) -> Estimate | None:
    """Return the first lane's throughput over the second's, from the rounds both ran in; None from too few.

    The interval holds what two processes that do the same differ by; see `BETWEEN_PROCESSES`.
    """
    return _exponential(_between_processes(trimmed(_log_ratios(first, second))))


def gain(pairs: Sequence[tuple[SliceSpeed, SliceSpeed]], *, one_process: bool = True) -> Estimate | None:
    """Return one lane's throughput under other settings over that before; None from too few pairs.

    A pair holds a slice under the settings before and one under the others, soon after each other. Where each
    setting had a process of its own the interval holds what two processes differ by; see `BETWEEN_PROCESSES`.
    """
    logs = trimmed(
        [math.log(new.examples_per_s / old.examples_per_s) for old, new in pairs if old.examples * new.examples]
    )
    return _exponential(logs if one_process else _between_processes(logs))


@_remembered
def speed(slices: Sequence[SliceSpeed]) -> Estimate | None:
    """Return a lane's throughput over its slices, in examples/s; None from too few."""
    return _speed(slices)


def _speed(slices: Sequence[SliceSpeed]) -> Estimate | None:
    return _exponential(trimmed([math.log(one.examples_per_s) for one in slices if one.examples > 0]))


@_remembered
def drift(slices: Sequence[SliceSpeed]) -> float | None:
    """Return the throughput of the last third of the slices over that of the first, if it has clearly changed.

    None unless the two differ by more than `DRIFT` and by more than their slices scatter.
    """
    third = len(slices) // 3
    early, late = _speed(slices[:third]), _speed(slices[len(slices) - third :])
    if early is None or late is None:
        return None
    apart = early.high < late.low or late.high < early.low
    change = late.value / early.value
    return change if apart and abs(change - 1) > DRIFT else None


@_remembered
def outliers(first: Sequence[SliceSpeed], second: Sequence[SliceSpeed]) -> int:
    """Return how many pairs lie far off the others: a modified z-score over 3.5, and off by more than `DRIFT`.

    Source: Iglewicz, Hoaglin (1993), How to Detect and Handle Outliers.
    """
    logs = _log_ratios(first, second)
    if len(logs) < LEAST_PAIRS:
        return 0
    middle = median(logs)
    spread = median(abs(value - middle) for value in logs)
    far = max(3.5 * spread / 0.6745, math.log1p(DRIFT))
    return sum(abs(value - middle) > far for value in logs)


@_remembered
def _log_ratios(first: Sequence[SliceSpeed], second: Sequence[SliceSpeed]) -> list[float]:
    ours, theirs = _logs(first), _logs(second)
    return [log - theirs[number] for number, log in ours.items() if number in theirs]


@_remembered
def _logs(slices: Sequence[SliceSpeed]) -> dict[int, float]:
    """Return the logarithm of the throughput of each slice in which anything was done, by its round."""
    return {one.round: math.log(one.examples / one.span_ns) for one in slices if one.examples > 0}


def trimmed(values: Sequence[float]) -> Estimate | None:
    """Return the trimmed mean of values with its 95 % interval; None for fewer than `LEAST_PAIRS`."""
    if len(values) < LEAST_PAIRS:
        return None
    # Those of a long race are remembered by their slices alone: here they would take 60 kB each.
    return _trimmed(tuple(values)) if len(values) <= MOST_REMEMBERED else _trimmed_mean(values)


@functools.lru_cache(maxsize=64)
def _trimmed(values: tuple[float, ...]) -> Estimate | None:
    """Compute it once for the same values: a screen asks twice a second, of a crossover for three a place."""
    return _trimmed_mean(values)


def _trimmed_mean(values: Sequence[float]) -> Estimate | None:
    ordered = sorted(values)
    cut = int(TRIM * len(ordered))
    kept = ordered[cut : len(ordered) - cut]
    mean = fmean(kept)
    winsorised = [kept[0]] * cut + kept + [kept[-1]] * cut
    middle = fmean(winsorised)
    variance = math.fsum((value - middle) ** 2 for value in winsorised) / (len(ordered) - 1)
    error = math.sqrt(variance / len(ordered)) / (1 - 2 * TRIM)
    half = _student_95(len(kept) - 1) * error
    return Estimate(mean, mean - half, mean + half, len(ordered)) if math.isfinite(half) else None


@functools.cache
def _student_95(degrees: int) -> float:
    """Return how many standard errors Student's t holds in 95 % of cases on either side."""
    from scipy.special import stdtrit  # late: a race needs it only after some pairs

    return float(stdtrit(degrees, 0.975))


def _between_processes(logs: Estimate | None) -> Estimate | None:
    if logs is None:
        return None
    lower, upper = logs.value - logs.low, logs.high - logs.value
    return Estimate(
        logs.value,
        logs.value - math.hypot(lower, BETWEEN_PROCESSES_95),
        logs.value + math.hypot(upper, BETWEEN_PROCESSES_95),
        logs.pairs,
    )


def _exponential(logs: Estimate | None) -> Estimate | None:
    if logs is None:
        return None
    return Estimate(math.exp(logs.value), math.exp(logs.low), math.exp(logs.high), logs.pairs)

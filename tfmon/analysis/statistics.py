"""Throughput of lanes and ratios of throughputs from slices, with 95 % intervals for noisy machines.

Slices of one round give a pair, whose ratio slow changes hardly touch. The effect of coming first in a round is
removed. Equal processes differ in speed by their layout in memory, so every interval includes between-process
variance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median

from tfmon.analysis.intervals import (
    AT_THE_END,
    LEAST_PAIRS,
    Center,
    Looks,
    estimate_of,
    student,
    trimmed,
    trimmed_in_time,
)
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.race import BetweenProcesses
from tfmon.model.readings import Estimate
from tfmon.model.series import Pair
from tfmon.model.windows import SliceSpeed

BETWEEN_PROCESSES_SD = 0.008
"""Supposed standard deviation of the log ratio of equal processes.

It was 0.006 in 20 races on 2 cores, and up to 0.014 in one. Source: `benchmarks/verdicts.py`.
"""
BETWEEN_MACHINES_SD = 0.008
"""The same for lanes on two machines: at least as on one.

Source: `benchmarks/hosts.py fair` and `between`: 36 pairs differed by 0.016, as their noise explains.
"""
SUPPOSED_DEGREES = 4
MOST_DEGREES = 10
"""Maximum degrees from earlier races, because a machine can change."""
DRIFT = 0.05
"""Minimum drift to report, and minimum distance of an outlier."""
FAR = 3.5 / 0.6745
"""Outliers, in median absolute deviations.

Source: Iglewicz, Hoaglin (1993), How to Detect and Handle Outliers.
"""


@dataclass(frozen=True, slots=True)
class Throughput:
    """The throughput of one lane."""

    slices: tuple[SliceSpeed, ...]
    center: Center | None
    drift: float | None

    def speed(self, looks: Looks = AT_THE_END) -> Estimate | None:
        """Return the throughput in examples/s, if known."""
        return None if self.center is None else self.center.estimate(looks)

    @classmethod
    def from_slices(cls, slices: tuple[SliceSpeed, ...]) -> Throughput:
        """Return the throughput of these slices."""
        logs = [part.log for part in slices if part.examples]
        return cls(slices, trimmed_in_time(logs), drift(logs))


@dataclass(frozen=True, slots=True)
class Between:
    """Between-process variance of the log ratio."""

    sd: float
    """For one process of each lane."""
    degrees: float
    processes: float = 1.0
    """Effective number of processes."""
    learnt: BetweenProcesses | None = None
    """The variance in this race alone."""
    supposed_sd: float = BETWEEN_PROCESSES_SD

    def reach(self, looks: Looks = AT_THE_END) -> float:
        """Return the part of half the interval that more pairs do not reduce."""
        return student(looks.error, self.degrees) * self.sd / math.sqrt(self.processes)

    def with_prior(self, prior: BetweenProcesses | None) -> Between:
        """Return the variance with the variance of other races."""
        if prior is not None and prior.degrees > MOST_DEGREES:
            prior = BetweenProcesses(prior.squares * MOST_DEGREES / prior.degrees, MOST_DEGREES, prior.races)
        known = [estimate for estimate in (prior, self.learnt) if estimate is not None]
        supposed = self.supposed_sd**2
        squares = SUPPOSED_DEGREES * supposed + sum(estimate.squares for estimate in known)
        degrees = SUPPOSED_DEGREES + sum(estimate.degrees for estimate in known)
        variance = max(squares, SUPPOSED_DEGREES / 2 * supposed) / degrees
        return replace(self, sd=math.sqrt(variance), degrees=degrees)


@dataclass(frozen=True, slots=True)
class LogRatio:
    """The log ratio of two speeds."""

    center: Center
    between: Between

    def reach(self, looks: Looks = AT_THE_END) -> float:
        """Return half the 95 % interval. Infinite without an interval."""
        return math.hypot(self.center.reach(looks), self.between.reach(looks))

    def estimate(self, looks: Looks = AT_THE_END) -> Estimate | None:
        """Return the ratio with its interval."""
        return estimate_of(self.center.value, self.reach(looks), self.center.count, looks)


def pairs_of(first: Iterable[SliceSpeed], second: Iterable[SliceSpeed]) -> list[Pair]:
    """Return the pairs of slices of common rounds in which both trained."""
    rounds = {part.round: part for part in second if part.examples}
    both = [(part, rounds[part.round]) for part in first if part.examples and part.round in rounds]
    processes = [pair_log.process for pair_log, _ in both], [other.process for _, other in both]
    fewest = min(processes, key=lambda process: len(set(process)))  # restarts
    return [
        Pair(baseline.log - other.log, baseline.at_ns < other.at_ns, process, other.log)
        for (baseline, other), process in zip(both, fewest, strict=True)
    ]


def compare(
    pairs: Sequence[Pair],
    prior: BetweenProcesses | None = None,
    *,
    in_turns: bool = True,
    two_machines: bool = False,
) -> LogRatio | None:
    """Compare two lanes by pairs. `None` from too few.

    Args:
        in_turns: Whether the lanes trained in turns.
        two_machines: Whether the lanes trained on two machines.
    """
    logs, estimated = [pair.log for pair in pairs], 0
    if in_turns and not two_machines:  # without the effect of coming first
        ahead, behind = (trimmed([pair.log for pair in pairs if pair.leads is leads]) for leads in (True, False))
        if ahead is not None and behind is not None:
            half, estimated = (ahead.value - behind.value) / 2, 1
            logs = [pair.log - half if pair.leads else pair.log + half for pair in pairs]
    center = trimmed(logs, estimated=estimated, few=True)
    if center is None:
        return None
    supposed_sd = BETWEEN_MACHINES_SD if two_machines else BETWEEN_PROCESSES_SD
    return LogRatio(center, between_processes(logs, [pair.visit for pair in pairs], prior, supposed_sd))


def gain(pairs: Sequence[Pair], looks: Looks = AT_THE_END, *, one_process: bool = True) -> Estimate | None:
    """Return the gain of new settings, with between-process variance unless `one_process`."""
    if one_process:
        center = trimmed([pair.log for pair in pairs])
        return None if center is None else center.estimate(looks)
    result = compare(pairs, in_turns=False)
    return None if result is None else result.estimate(looks)


def drift(logs: Sequence[float]) -> float | None:
    """Return the last third over the first, if they differ by `DRIFT`."""
    third = len(logs) // 3
    early, late = trimmed(logs[:third]), trimmed(logs[len(logs) - third :])
    if early is None or late is None:
        return None
    change = late.value - early.value
    certain = abs(change) > early.reach() + late.reach()
    return math.exp(change) if certain and abs(math.exp(change) - 1) > DRIFT else None


def outliers(pairs: Sequence[Pair]) -> list[bool]:
    """Return which pairs are outliers."""
    logs = [pair.log for pair in pairs]
    if len(logs) < LEAST_PAIRS:
        return []
    middle = median(logs)
    far = max(FAR * median([abs(value - middle) for value in logs]), math.log1p(DRIFT))
    return [abs(value - middle) > far for value in logs]


def between_processes(
    logs: Sequence[float],
    processes: Sequence[int],
    prior: BetweenProcesses | None = None,
    supposed_sd: float = BETWEEN_PROCESSES_SD,
) -> Between:
    """Return the between-process variance.

    The squared distances of the processes from their mean, less the scatter of the pairs, are added to the squares
    of the prior and the supposed deviation.
    """
    groups: dict[int, list[float]] = {}
    for value, process in zip(logs, processes, strict=True):
        groups.setdefault(process, []).append(value)
    effective = len(logs) ** 2 / sum(len(group) ** 2 for group in groups.values()) if logs else 1.0
    between = Between(supposed_sd, SUPPOSED_DEGREES, effective, _learnt(list(groups.values())), supposed_sd)
    return between.with_prior(prior)


def _learnt(groups: Sequence[Sequence[float]]) -> BetweenProcesses | None:
    centers = [(group, center) for group in groups if (center := trimmed(group)) is not None]
    if len(centers) < 2:
        return None
    count = sum(len(group) for group, _ in centers)
    each = count / len(centers)
    mean = sum(len(group) * center.value for group, center in centers) / count
    within = trimmed([value - center.value for group, center in centers for value in group], len(centers) - 1)
    if within is None:
        return None
    squares = sum(len(group) / each * (center.value - mean) ** 2 for group, center in centers)
    scatter = within.error**2 * count / each  # of one process, by its pairs
    degrees = len(centers) - 1
    return BetweenProcesses(squares - degrees * scatter, degrees, 1)

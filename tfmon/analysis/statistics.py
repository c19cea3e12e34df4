"""Throughput of lanes and their ratios from slices, with a 95 % interval that holds on a noisy machine.

Slices of one round give one ratio, a pair, which slow changes hardly touch. The effect of coming first in a round
is removed. Two equal processes differ in speed as long as they live, by how their memory is laid out, so every
interval includes between-process variance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple, TypeAlias

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
from tfmon.model.race import BetweenProcesses
from tfmon.model.readings import Estimate
from tfmon.model.series import Pair
from tfmon.model.windows import SliceSpeed


class LogSpeed(NamedTuple):
    """A lane's speed in one slice."""

    log: float
    at_ns: int
    process: int


LogSpeeds: TypeAlias = Mapping[int, LogSpeed]

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
"""Of earlier races: a machine can change."""
DRIFT = 0.05
"""Reported drift, and distance of an outlier."""
FAR = 3.5 / 0.6745
"""Outliers, in median absolute deviations.

Source: Iglewicz, Hoaglin (1993), How to Detect and Handle Outliers.
"""


@dataclass(frozen=True, slots=True)
class Throughput:
    """The throughput of one lane."""

    slices: tuple[SliceSpeed, ...]
    logs: LogSpeeds
    center: Center | None
    drift: float | None

    def speed(self, looks: Looks = AT_THE_END) -> Estimate | None:
        """Return the throughput in examples/s, if known."""
        return None if self.center is None else exponential(self.center.estimate(looks))

    @classmethod
    def of(cls, slices: tuple[SliceSpeed, ...], before: Throughput | None = None) -> Throughput:
        """Return the throughput of these slices; `before` has figures to reuse."""
        done = len(before.slices) - 1 if before is not None else 0  # the last one may have grown since
        if before is not None and done > 0 and before.slices[:done] == slices[:done]:
            logs = {**before.logs}
            logs.pop(before.slices[done].round, None)
            logs |= log_speeds(slices[done:])
        else:
            logs = log_speeds(slices)
        return cls(slices, logs, trimmed_in_time([one.log for one in logs.values()]), drift(logs))


@dataclass(frozen=True, slots=True)
class Between:
    """Between-process variance of the log ratio."""

    sd: float
    """For one process of each lane."""
    degrees: float
    processes: float = 1.0
    """Effective number of processes."""
    learnt: BetweenProcesses | None = None
    """From this race alone."""

    def reach(self, looks: Looks = AT_THE_END) -> float:
        """Return the part of half the interval that more pairs do not reduce."""
        return student(looks.error, self.degrees) * self.sd / math.sqrt(self.processes)


@dataclass(frozen=True, slots=True)
class LogRatio:
    """The log ratio of two speeds."""

    center: Center
    between: Between | None
    """`None` if one process ran both."""

    def reach(self, looks: Looks = AT_THE_END) -> float:
        """Return half the 95 % interval. Infinite without one."""
        within = self.center.reach(looks)
        return within if self.between is None else math.hypot(within, self.between.reach(looks))

    def estimate(self, looks: Looks = AT_THE_END) -> Estimate | None:
        """Return the ratio with its interval."""
        return exponential(estimate_of(self.center.value, self.reach(looks), self.center.count, looks))


def log_speeds(slices: Iterable[SliceSpeed]) -> dict[int, LogSpeed]:
    """Return the speeds of non-empty slices by round."""
    log = math.log
    return {
        part.round: LogSpeed(log(part.examples / part.span_ns * 1e9), part.at_ns, part.process)
        for part in slices
        if part.examples > 0
    }


def compare(
    first: LogSpeeds,
    second: LogSpeeds,
    prior: BetweenProcesses | None = None,
    *,
    in_turns: bool = True,
    apart: bool = False,
) -> LogRatio | None:
    """Compare two lanes by common rounds. `None` from too few.

    Args:
        in_turns: Whether the lanes trained in turns.
        apart: Whether they trained on two machines.
    """
    both = [(one, second[number]) for number, one in first.items() if number in second]
    processes = [one.process for one, _ in both], [other.process for _, other in both]
    fewest = min(processes, key=lambda one: len(set(one)))  # restarts
    pairs = [
        Pair(one.log - other.log, one.at_ns < other.at_ns, process)
        for (one, other), process in zip(both, fewest, strict=True)
    ]
    return compare_pairs(pairs, prior, in_turns=in_turns, apart=apart)


def compare_pairs(
    pairs: Sequence[Pair], prior: BetweenProcesses | None = None, *, in_turns: bool = True, apart: bool = False
) -> LogRatio | None:
    """Compare two lanes by pairs. `None` from too few."""
    logs, estimated = [pair.log for pair in pairs], 0
    if in_turns and not apart:  # without the effect of coming first
        ahead, behind = (trimmed([pair.log for pair in pairs if pair.leads is leads]) for leads in (True, False))
        if ahead is not None and behind is not None:
            half, estimated = (ahead.value - behind.value) / 2, 1
            logs = [pair.log - half if pair.leads else pair.log + half for pair in pairs]
    center = trimmed(logs, estimated=estimated, few=True)
    if center is None:
        return None
    supposed_sd = BETWEEN_MACHINES_SD if apart else BETWEEN_PROCESSES_SD
    return LogRatio(center, between_processes(logs, [pair.visit for pair in pairs], prior, supposed_sd))


def gain(pairs: Sequence[Pair], looks: Looks = AT_THE_END, *, one_process: bool = True) -> Estimate | None:
    """Return the gain of new settings. Without `one_process` with between-process variance."""
    if one_process:
        center = trimmed([pair.log for pair in pairs])
        return None if center is None else exponential(center.estimate(looks))
    result = compare_pairs(pairs, in_turns=False)
    return None if result is None else result.estimate(looks)


def drift(lane: LogSpeeds) -> float | None:
    """Return last third over first, if it is off by `DRIFT`."""
    values = [one.log for one in lane.values()]
    third = len(values) // 3
    early, late = trimmed(values[:third]), trimmed(values[len(values) - third :])
    if early is None or late is None:
        return None
    change = late.value - early.value
    apart = abs(change) > early.reach() + late.reach()
    return math.exp(change) if apart and abs(math.exp(change) - 1) > DRIFT else None


def outliers(first: LogSpeeds, second: LogSpeeds) -> list[bool]:
    """Return which pairs are outliers."""
    logs = [one.log - second[number].log for number, one in first.items() if number in second]
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
    of the prior and of the supposed deviation.
    """
    groups: dict[int, list[float]] = {}
    for value, process in zip(logs, processes, strict=True):
        groups.setdefault(process, []).append(value)
    effective = len(logs) ** 2 / sum(len(group) ** 2 for group in groups.values()) if logs else 1.0
    learnt = _learnt(list(groups.values()))
    if prior is not None and prior.degrees > MOST_DEGREES:
        prior = BetweenProcesses(prior.squares * MOST_DEGREES / prior.degrees, MOST_DEGREES, prior.races)
    known = [one for one in (prior, learnt) if one is not None]
    supposed = supposed_sd**2
    squares = SUPPOSED_DEGREES * supposed + sum(one.squares for one in known)
    degrees = SUPPOSED_DEGREES + sum(one.degrees for one in known)
    variance = max(squares, SUPPOSED_DEGREES / 2 * supposed) / degrees
    return Between(math.sqrt(variance), degrees, effective, learnt)


def _learnt(groups: Sequence[Sequence[float]]) -> BetweenProcesses | None:
    """`None` for fewer than two processes with enough pairs."""
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


def exponential(logs: Estimate | None) -> Estimate | None:
    """Return the estimate from the estimate of its logarithm."""
    if logs is None:
        return None
    return Estimate(math.exp(logs.value), math.exp(logs.low), math.exp(logs.high), logs.pairs, logs.kind)

"""Throughput of lanes and their ratios from slices, each with a 95 % interval that holds on a noisy machine.

Slices of one round give one ratio, a pair, which slow changes (heat, other load) hardly touch. The effect of
coming
first in a round is estimated and removed. Two equal processes differ in speed as long as they live, by how their
memory
is laid out, so every interval includes between-process variance, from the race and from earlier races.

All functions take logarithms by round, see `log_speeds`, which are computed once.
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
    """The speed of a lane in one slice."""

    log: float
    at_ns: int
    process: int


LogSpeeds: TypeAlias = Mapping[int, LogSpeed]
"""The speed of a lane in each slice, by round."""

BETWEEN_PROCESSES_SD = 0.008
"""Supposed between-process standard deviation of the log ratio of two equal processes.

It was 0.006 in 20 races of 15 s of identical lanes on 2 cores, and up to 0.014 in one race.
Source: `benchmarks/fairness.py`.
"""
BETWEEN_MACHINES_SD = 0.008
"""The same for lanes on two machines: at least as on one. Not measured on two machines of one model.

Source: `benchmarks/hosts.py fair` and `between`, 2 cores of an AMD EPYC, 2026-11-22: 36 pairs of processes, one
through
an agent on the same machine, differed by 0.016, as their noise explains.
"""
SUPPOSED_DEGREES = 4
MOST_DEGREES = 10
"""Limit for earlier races: a machine can change."""
DRIFT = 0.05
"""From here on, drift within a race or an outlying pair is reported."""
FAR = 3.5 / 0.6745
"""Median absolute deviations from which on a value is an outlier: a modified z-score over 3.5.

Source: Iglewicz, Hoaglin (1993), How to Detect and Handle Outliers.
"""


@dataclass(frozen=True, slots=True)
class Throughput:
    """The throughput of one lane, computed once for all its figures."""

    slices: tuple[SliceSpeed, ...]
    logs: LogSpeeds
    center: Center | None
    drift: float | None

    def speed(self, looks: Looks = AT_THE_END) -> Estimate | None:
        """Return the throughput in examples/s. `None` from too few slices."""
        return None if self.center is None else exponential(self.center.estimate(looks))

    @classmethod
    def of(cls, slices: tuple[SliceSpeed, ...], before: Throughput | None = None) -> Throughput:
        """Return the throughput of these slices; `before` is the throughput a few slices ago."""
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
    """Standard deviation of the log ratio of one process of each lane."""
    degrees: float
    processes: float = 1.0
    """Effective number of processes of each lane; fewer if their times differ."""
    learnt: BetweenProcesses | None = None
    """From this race alone; `None` with one process of each lane."""

    def reach(self, looks: Looks = AT_THE_END) -> float:
        """Return the part of half the interval that more pairs of the same processes do not reduce."""
        return student(looks.error, self.degrees) * self.sd / math.sqrt(self.processes)


@dataclass(frozen=True, slots=True)
class LogRatio:
    """The log ratio of two speeds, from pairs of slices."""

    center: Center
    between: Between | None
    """`None` if one process ran both."""

    def reach(self, looks: Looks = AT_THE_END) -> float:
        """Return half the 95 % interval. Infinite without one."""
        within = self.center.reach(looks)
        return within if self.between is None else math.hypot(within, self.between.reach(looks))

    def estimate(self, looks: Looks = AT_THE_END) -> Estimate | None:
        """Return the ratio with its interval, if any."""
        return exponential(estimate_of(self.center.value, self.reach(looks), self.center.count, looks))


def log_speeds(slices: Iterable[SliceSpeed]) -> dict[int, LogSpeed]:
    """Return the logarithms of the speeds of non-empty slices."""
    log = math.log
    return {
        one.round: LogSpeed(log(one.examples / one.span_ns * 1e9), one.at_ns, one.process)
        for one in slices
        if one.examples > 0
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
        in_turns: Whether the lanes trained in turns in each round, if they trained on one machine.
        apart: Whether they trained on two machines, at the same time.
    """
    pairs = [(one, second[number]) for number, one in first.items() if number in second]
    logs = [one.log - other.log for one, other in pairs]
    leads = [one.at_ns < other.at_ns for one, other in pairs] if in_turns and not apart else []
    processes = [(one.process, other.process) for one, other in pairs]
    return _compare(logs, leads, processes, prior, BETWEEN_MACHINES_SD if apart else BETWEEN_PROCESSES_SD)


def compare_pairs(
    pairs: Sequence[Pair], prior: BetweenProcesses | None = None, *, apart: bool = False
) -> LogRatio | None:
    """Compare two lanes by the pairs of a series. `apart` as in `compare`."""
    leads = [] if apart else [pair.leads for pair in pairs]
    processes = [(pair.visit, pair.visit) for pair in pairs]
    supposed_sd = BETWEEN_MACHINES_SD if apart else BETWEEN_PROCESSES_SD
    return _compare([pair.log for pair in pairs], leads, processes, prior, supposed_sd)


def ratio(
    first: LogSpeeds,
    second: LogSpeeds,
    looks: Looks = AT_THE_END,
    prior: BetweenProcesses | None = None,
    *,
    apart: bool = False,
) -> Estimate | None:
    """Return the first lane's throughput over the second's, from common rounds. `None` from too few."""
    result = compare(first, second, prior, apart=apart)
    return None if result is None else result.estimate(looks)


def gain(pairs: Sequence[Pair], looks: Looks = AT_THE_END, *, one_process: bool = True) -> Estimate | None:
    """Return a lane's throughput under new settings over the old ones. `None` from too few pairs.

    Without `one_process` the interval includes between-process variance.
    """
    logs = [pair.log for pair in pairs]
    if one_process:
        center = trimmed(logs)
        return None if center is None else exponential(center.estimate(looks))
    result = _compare(logs, (), [(pair.visit, pair.visit) for pair in pairs])
    return None if result is None else result.estimate(looks)


def drift(lane: LogSpeeds) -> float | None:
    """Return the throughput of the last third of the slices over the first, if it is off by `DRIFT`."""
    values = [one.log for one in lane.values()]
    third = len(values) // 3
    early, late = trimmed(values[:third]), trimmed(values[len(values) - third :])
    if early is None or late is None:
        return None
    change = late.value - early.value
    apart = abs(change) > early.reach() + late.reach()
    return math.exp(change) if apart and abs(math.exp(change) - 1) > DRIFT else None


def outliers(first: LogSpeeds, second: LogSpeeds) -> list[bool]:
    """Return the outlying pairs (see `FAR`) that are off by more than `DRIFT`."""
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
    """Return the between-process variance, from the pairs of each process and the prior.

    The squared distances of the processes from their mean, less the scatter of the pairs, are added to the squares
    of the prior
    and of the supposed standard deviation.
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
    """Return the estimate from the processes of one race. `None` for fewer than two with enough pairs."""
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
    scatter = within.error**2 * count / each  # The variance of the mean of one process, by its pairs alone.
    degrees = len(centers) - 1
    return BetweenProcesses(squares - degrees * scatter, degrees, 1)


def _compare(
    logs: Sequence[float],
    first_leads: Sequence[bool],
    processes: Sequence[tuple[int, int]],
    prior: BetweenProcesses | None = None,
    supposed_sd: float = BETWEEN_PROCESSES_SD,
) -> LogRatio | None:
    effect = None  # half of the log ratio's increase if the first lane's slice came first
    if first_leads:
        leading = trimmed([value for value, leads in zip(logs, first_leads, strict=True) if leads])
        following = trimmed([value for value, leads in zip(logs, first_leads, strict=True) if not leads])
        if leading is not None and following is not None:
            effect = (leading.value - following.value) / 2
    if effect is not None:
        logs = [
            value - effect if leads else value + effect for value, leads in zip(logs, first_leads, strict=True)
        ]
    center = trimmed(logs, estimated=0 if effect is None else 1, few=True)
    if center is None:
        return None
    # If one lane was restarted more often, each process of the other makes one group.
    firsts, seconds = zip(*processes, strict=True)
    groups = firsts if len(set(firsts)) <= len(set(seconds)) else seconds
    return LogRatio(center, between_processes(logs, groups, prior, supposed_sd))


def exponential(logs: Estimate | None) -> Estimate | None:
    """Return the estimate of a value from the estimate of its logarithm."""
    if logs is None:
        return None
    return Estimate(math.exp(logs.value), math.exp(logs.low), math.exp(logs.high), logs.pairs, logs.kind)

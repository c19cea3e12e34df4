"""How much faster a lane was in one race than in another, with an interval that has what the machine changed by.

The slices of two races are not paired: each race has its own mean, as unsure as slow changes of the machine make
it. Of several races on each side, how much their means scatter tells all of that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tfmon.analysis import statistics
from tfmon.analysis.history import center_of
from tfmon.analysis.intervals import AT_THE_END, Center, Looks, Shift, shift
from tfmon.analysis.others import contention
from tfmon.model.lane_state import LaneState
from tfmon.model.race import BetweenProcesses
from tfmon.model.readings import NOT_SAMPLED, Reading
from tfmon.model.readings import known as known_value
from tfmon.model.session import Snapshot

LEAST_RACES = 3
"""Several races on each side must be so many of which the throughput is known; others may have too few slices."""
BETWEEN_RACES_SD = 0.01
"""Standard deviation that is supposed of the log ratio of two equal races, one soon after the other.

A judgement for a machine that has nothing else to do: three races on such a one differed by 0.005. On virtual
machines with busy neighbours it was 0.03 to 0.08. Several races on each side say it themselves.
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a race measured of one lane, as far as another race is compared with it."""

    center: Center | None
    """The mean logarithm of its throughput in examples/s; None from too few slices."""
    others_cores: Reading
    """How many cores other programs kept busy in its slices."""
    stolen_share: Reading
    """Share of one core's time in them that the hypervisor gave to other machines."""

    @classmethod
    def of(cls, lane: LaneState, known: Snapshot) -> Measured:
        """Return the statistics of its slices; of a lane that is alone in its race, those of its windows."""
        sliced = len(known.lanes) > 1
        center = center_of(lane, sliced=sliced)
        if sliced:
            took = contention([lane.slices])
            return cls(center, took.others_cores, took.stolen_share)
        hosts = known.place_of(lane).history
        return cls(
            center,
            _mean_cores([one.others_cpu_pct for one in hosts]),
            _mean_cores([one.steal_pct for one in hosts]),
        )


@dataclass(frozen=True, slots=True)
class Change:
    """A figure of the second race over that of the first."""

    ratio: float
    low: float | None
    """End of the 95 % interval; None where there is none."""
    high: float | None

    @property
    def sure(self) -> bool:
        """True when the interval excludes 1."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high


def change_of(
    races: Sequence[tuple[Measured, Measured]], prior: BetweenProcesses | None = None, looks: Looks = AT_THE_END
) -> Change | None:
    """Return the throughput after over that before, with its interval; None from too few slices or races.

    Args:
        races: What was measured of the lane before and after, once or several times.
        prior: What is known of how much equal processes differ; several races tell it themselves.
        looks: How the interval is looked at.
    """
    first = [before.center for before, _ in races if before.center is not None]
    second = [after.center for _, after in races if after.center is not None]
    if len(races) == 1 and first and second:
        found = _of_one_race(first[0], second[0], prior, looks)
    elif min(len(first), len(second)) >= LEAST_RACES:
        found = shift([one.value for one in first], [one.value for one in second], looks.error)
    else:
        return None
    return Change(*map(math.exp, found))


def _of_one_race(before: Center, after: Center, prior: BetweenProcesses | None, looks: Looks) -> Shift:
    """Return the difference of two races.

    Half the interval is the root of the sum of squares of what the slices leave open, what equal processes differ
    by, and what a machine's own speed is supposed to change by from one race to the next.
    """
    processes = statistics.between_processes((), (), prior)
    machine = statistics.Between(BETWEEN_RACES_SD, statistics.SUPPOSED_DEGREES)
    reach = math.hypot(*(part.reach(looks) for part in (before, after, processes, machine)))
    value = after.value - before.value
    return Shift(value, value - reach, value + reach)


def _mean_cores(readings: Sequence[Reading]) -> Reading:
    """Return the mean of readings in percent of a core, in cores."""
    values = [value for one in readings if (value := known_value(one)) is not None]
    return sum(values) / len(values) / 100 if values else NOT_SAMPLED

"""Measured values, or why they are missing."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import field
from typing import Annotated, Literal, TypeAlias

from tfmon.model.event_base import Event, Range
from tfmon.model.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Missing:
    """Replaces a number that was not measured."""

    reason: str


Reading: TypeAlias = float | Missing
"""In the unit at the end of the name. Never 0 for unknown."""

NOT_READ, NOT_SAMPLED = Missing("not read here"), Missing("not sampled yet")
NO_STOLEN = Missing("this system does not report stolen time")


def known(reading: Reading) -> float | None:
    """Return the number, or `None`."""
    return None if isinstance(reading, Missing) else reading


def summed(readings: Iterable[Reading]) -> Reading:
    """Return the sum, or the reason for a missing term."""
    total = 0.0
    for reading in readings:
        if isinstance(reading, Missing):
            return reading
        total += reading
    return total


def scaled(reading: Reading, factor: float) -> Reading:
    """Return the reading times a factor."""
    return reading if isinstance(reading, Missing) else factor * reading


def mean(readings: Iterable[Reading]) -> Reading:
    """Return the mean of the known readings."""
    values = [value for reading in readings if (value := known(reading)) is not None]
    return sum(values) / len(values) if values else NOT_SAMPLED


IntervalKind: TypeAlias = Literal["always-valid", "spending", "fixed"]
ALWAYS_VALID: IntervalKind = "always-valid"
SPENDING: IntervalKind = "spending"
FIXED: IntervalKind = "fixed"


TOO_WIDE = 4.0
"""Upper over lower end of a wide interval."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float
    pairs: int
    kind: IntervalKind = FIXED

    @property
    def half_width(self) -> float:
        """Half the interval over the value."""
        return (self.high - self.low) / 2 / self.value

    @property
    def inverse(self) -> Estimate:
        """The inverse of a ratio."""
        return Estimate(1 / self.value, 1 / self.high, 1 / self.low, self.pairs, self.kind)

    def clear_of(self, value: float) -> bool:
        """Return whether the interval excludes a value."""
        return self.low > value or self.high < value

    @property
    def is_narrow(self) -> bool:
        """Whether a ratio's interval is narrow or excludes 1."""
        return self.low > 0 and (self.clear_of(1) or self.high < TOO_WIDE * self.low)


FINITE = Range(-sys.float_info.max, sys.float_info.max)


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeSample(Event):
    """CPU and memory of a lane's process tree."""

    cpu_pct: Reading
    """100 is one busy core."""
    private_bytes: Reading
    processes: int
    pids: tuple[int, ...] = ()
    waited_pct: Reading = NOT_READ
    """100 is one permanently waiting thread."""
    killed: dict[int, int] = field(default_factory=dict)
    """Signals by unreaped process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSample(Event):
    """A machine. 100 % of CPU is one core."""

    host: str = ""
    cpu_pct: Reading
    memory_used_bytes: Reading
    memory_total_bytes: Reading
    usable_cores: Reading = NOT_READ
    """Minimum of cores, affinity and the container's quota."""
    monitor_cpu_pct: Reading = NOT_READ
    others_cpu_pct: Reading = NOT_READ
    steal_pct: Reading = NOT_READ
    """Time given to other machines despite work."""
    swap_in_bytes_per_s: Reading = NOT_READ
    swap_out_bytes_per_s: Reading = NOT_READ
    cpu_pressure_pct: Reading = NOT_READ
    """Mean of the last 10 s."""
    memory_pressure_pct: Reading = NOT_READ
    throttled_pct: Reading = NOT_READ
    """Share of the quota's periods."""


Amount: TypeAlias = Annotated[int, Range(0, 10**17)]
CONTENDED = 0.05
"""Least shares of waiting time and of used cores."""
FULL = 0.9
"""Above this share, no core is free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceLoad:
    """Use of the CPU in a slice."""

    span_ns: Amount
    examples: Amount
    cpu_ns: Amount
    delay_ns: Amount | None = None
    """Time of threads waiting for a core."""
    others_ns: Amount | None = None
    stolen_ns: Amount | None = None
    cores: Amount | None = None

    @property
    def contended(self) -> bool | None:
        """Whether other programs took CPU time from the lane.

        The lane's threads also wait for each other, a quarter of their time with small steps. So others must have
        used the CPU, and no core was free.
        """
        if self.delay_ns is None or self.others_ns is None or self.cores is None:
            return None
        taken_ns, all_ns = self.others_ns + (self.stolen_ns or 0), self.cores * self.span_ns
        waited = self.delay_ns > CONTENDED * self.cpu_ns
        return waited and taken_ns > CONTENDED * all_ns and self.cpu_ns + taken_ns > FULL * all_ns

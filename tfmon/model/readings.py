"""Measured values, or the reason why there is none: readings, estimates, and what the probes sample.

Stamps (`at_ns`) are those of `time.monotonic_ns` on the monitor's machine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Missing:
    """In place of a number that was not measured. Arithmetic on it does not type-check."""

    reason: str
    """In words for the user, such as "no GPU in this lane"."""


Reading: TypeAlias = float | Missing
"""A number in the unit that its field's name ends in, or why it is unknown. Never 0 for unknown."""

NOT_READ, NOT_SAMPLED = Missing("not read here"), Missing("not sampled yet")
NO_STOLEN = Missing("this system does not report stolen time")


def known(reading: Reading) -> float | None:
    """Return the number, or None where it is missing."""
    return None if isinstance(reading, Missing) else reading


def summed(readings: Iterable[Reading]) -> Reading:
    """Return the sum, or why one of them is missing."""
    total = 0.0
    for reading in readings:
        if isinstance(reading, Missing):
            return reading
        total += reading
    return total


IntervalKind: TypeAlias = Literal["always-valid", "spending", "fixed"]
ALWAYS_VALID: IntervalKind = "always-valid"
SPENDING: IntervalKind = "spending"
FIXED: IntervalKind = "fixed"
"""What an interval is made for: looks at any time, looks within a known length, one look at the end."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float
    pairs: int
    """Measurements behind it."""
    kind: IntervalKind = FIXED

    @property
    def half_width(self) -> float:
        """Half the interval over the value: 0.05 means ±5 %."""
        return (self.high - self.low) / 2 / self.value

    def clear_of(self, value: float) -> bool:
        """Return whether the interval excludes a value."""
        return self.low > value or self.high < value


@dataclass(frozen=True, slots=True)
class Range:
    """Limits of a number, both included, as metadata of a field's type; the codec refuses others."""

    low: float
    high: float


FINITE = Range(-sys.float_info.max, sys.float_info.max)


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeSample:
    """CPU and memory of a lane's process tree."""

    lane: str
    at_ns: int
    cpu_pct: Reading
    """Since the sample before; 100 is one core kept busy."""
    private_bytes: Reading
    """Memory that no other process shares, summed over the tree."""
    processes: int
    pids: tuple[int, ...] = ()
    """The tree's processes, to find them in a GPU's list."""
    waited_pct: Reading = NOT_READ
    """How long its threads waited for a core since the sample before; 100 is one that waits all the time."""
    killed: dict[int, int] = field(default_factory=dict)
    """Processes that a signal has ended and nobody has waited for yet, with the number of the signal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSample:
    """The machine as a whole, and what may disturb a race on it.

    Units: shares of CPU time and rates over the time since the sample before; 100 % of CPU is one core.
    """

    lane: str = ""
    host: str = ""
    at_ns: int
    cpu_pct: Reading
    """All cores together since the sample before; 100 is one core kept busy."""
    memory_used_bytes: Reading
    memory_total_bytes: Reading
    usable_cores: Reading = NOT_READ
    """What a lane may use: the least of the machine's cores, the affinity and the container's quota."""
    monitor_cpu_pct: Reading = NOT_READ
    """tfmon's own process."""
    others_cpu_pct: Reading = NOT_READ
    """Processes that are neither tfmon nor in a lane's tree."""
    steal_pct: Reading = NOT_READ
    """Time that the hypervisor gave to other machines while this one had work for a core."""
    swap_in_bytes_per_s: Reading = NOT_READ
    swap_out_bytes_per_s: Reading = NOT_READ
    cpu_pressure_pct: Reading = NOT_READ
    """Share of the last 10 s in which some process had work and no core."""
    memory_pressure_pct: Reading = NOT_READ
    """Share of the last 10 s in which some process waited for memory."""
    throttled_pct: Reading = NOT_READ
    """Share of the quota's periods in which the lanes' control group had used it up."""


Amount: TypeAlias = Annotated[int, Range(0, 10**17)]
"""What is counted or summed up. In ns the limit is three years; no window has so many steps or examples."""
CONTENDED = 0.05
"""Share of its CPU time that a lane waits for a core, and of all cores that others use, from which on a slice is
contended."""
FULL = 0.9
"""Share of all cores from which on there is none left that others could use without taking it from the lane."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceLoad:
    """Who used the CPU in a slice, its discarded start included."""

    span_ns: Amount
    """Wall time from the beginning to the end of the slice."""
    examples: Amount
    """Examples trained in it, those that are discarded included."""
    cpu_ns: Amount
    """CPU time of all threads of the lane's process."""
    delay_ns: Amount | None = None
    """How long threads of the lane were ready to run and waited for a core; None where that is not reported."""
    others_ns: Amount | None = None
    """CPU time of all other programs of the machine; None where that is not reported."""
    stolen_ns: Amount | None = None
    """CPU time that the hypervisor gave to other machines; None where that is not reported."""
    cores: Amount | None = None
    """How many cores the lane may use; None where that is not known."""

    @property
    def contended(self) -> bool | None:
        """Whether other programs took CPU time from the lane; None where that is not known.

        The lane's threads also wait for each other, a quarter of their time with small steps, so that others must
        have used the CPU as well, and no core may have been left for them.
        """
        if self.delay_ns is None or self.others_ns is None or self.cores is None:
            return None
        taken_ns, all_ns = self.others_ns + (self.stolen_ns or 0), self.cores * self.span_ns
        waited = self.delay_ns > CONTENDED * self.cpu_ns
        return waited and taken_ns > CONTENDED * all_ns and self.cpu_ns + taken_ns > FULL * all_ns

"""Measured values, or the reason for a missing one: readings, estimates, and samples of the probes."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Missing:
    """Replaces a number that was not measured. Arithmetic on it does not type-check."""

    reason: str


Reading: TypeAlias = float | Missing
"""In the unit at the end of its field's name. Never 0 for unknown."""

NOT_READ, NOT_SAMPLED = Missing("not read here"), Missing("not sampled yet")
NO_STOLEN = Missing("this system does not report stolen time")


def known(reading: Reading) -> float | None:
    """Return the number, or `None` if it is missing."""
    return None if isinstance(reading, Missing) else reading


def summed(readings: Iterable[Reading]) -> Reading:
    """Return the sum, or the reason for a missing term."""
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
"""Looks at any time, looks within a known length, one look at the end."""


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

    def clear_of(self, value: float) -> bool:
        """Return whether the interval excludes a value."""
        return self.low > value or self.high < value


@dataclass(frozen=True, slots=True)
class Range:
    """Inclusive limits of a number in a field's type, checked by the codec."""

    low: float
    high: float


FINITE = Range(-sys.float_info.max, sys.float_info.max)


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeSample:
    """CPU and memory of a lane's process tree."""

    lane: str
    at_ns: int
    cpu_pct: Reading
    """Mean since the previous sample; 100 is one busy core."""
    private_bytes: Reading
    processes: int
    pids: tuple[int, ...] = ()
    waited_pct: Reading = NOT_READ
    """Waiting time for a core; 100 is one permanently waiting thread."""
    killed: dict[int, int] = field(default_factory=dict)
    """Signals of unreaped processes that a signal ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSample:
    """The machine as a whole, since the previous sample; 100 % of CPU is one core."""

    lane: str = ""
    host: str = ""
    at_ns: int
    cpu_pct: Reading
    memory_used_bytes: Reading
    memory_total_bytes: Reading
    usable_cores: Reading = NOT_READ
    """The least of the machine's cores, the affinity and the container's quota."""
    monitor_cpu_pct: Reading = NOT_READ
    others_cpu_pct: Reading = NOT_READ
    steal_pct: Reading = NOT_READ
    """Time that the hypervisor gave to other machines while this one had work."""
    swap_in_bytes_per_s: Reading = NOT_READ
    swap_out_bytes_per_s: Reading = NOT_READ
    cpu_pressure_pct: Reading = NOT_READ
    """Share of the last 10 s in which a process waited."""
    memory_pressure_pct: Reading = NOT_READ
    throttled_pct: Reading = NOT_READ
    """Share of the quota's periods that the lanes' control group exhausted."""


Amount: TypeAlias = Annotated[int, Range(0, 10**17)]
"""In ns the limit is three years; no window has more steps or examples."""
CONTENDED = 0.05
"""From this share of waiting CPU time, and of cores used by others, on, a slice is contended."""
FULL = 0.9
"""From this share of busy cores on, others can only take a core from the lane."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceLoad:
    """Use of the CPU in a slice, with its discarded start."""

    span_ns: Amount
    examples: Amount
    """With discarded ones."""
    cpu_ns: Amount
    delay_ns: Amount | None = None
    """Time in which threads of the lane waited for a core."""
    others_ns: Amount | None = None
    stolen_ns: Amount | None = None
    cores: Amount | None = None

    @property
    def contended(self) -> bool | None:
        """Whether other programs took CPU time from the lane.

        Threads of the lane also wait for each other, a quarter of their time with small steps. So others must have
        used the CPU as well, and no core may have been free.
        """
        if self.delay_ns is None or self.others_ns is None or self.cores is None:
            return None
        taken_ns, all_ns = self.others_ns + (self.stolen_ns or 0), self.cores * self.span_ns
        waited = self.delay_ns > CONTENDED * self.cpu_ns
        return waited and taken_ns > CONTENDED * all_ns and self.cpu_ns + taken_ns > FULL * all_ns

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
    """What its interval is made for; see `analysis.intervals`."""

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
"""Neither nan nor infinite."""


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


@dataclass(frozen=True, slots=True)
class ClockReason:
    """Why a GPU does not run at full clocks."""

    text: str
    level: str
    """`info`, `warning` or `alarm`."""


@dataclass(frozen=True, slots=True)
class SlowReading:
    """What a driver takes so long to answer that it is asked less often; a sample repeats what it said."""

    name: str
    """`load`, `activity`, `memory`, `processes`, `power`, `temperature`, `clocks`, `link`, `traffic`, `errors` or
    `messages`."""
    took_ms: float
    """How long reading it took the last time."""
    every_s: float
    """How often it is read now."""
    at_ns: int
    """When it was read."""


@dataclass(frozen=True, slots=True)
class GpuFault:
    """Something that went wrong in a GPU, as its driver reported it."""

    at_ns: int
    code: int | None
    """Number of the XID message; None where the driver gives none."""
    text: str
    by_program: bool = False
    """True for what most likely a program did wrong, not the GPU."""


@dataclass(frozen=True, slots=True)
class ProcessName:
    """Who runs what, of a process on a GPU, without control characters."""

    user: str
    """Empty where the system does not say."""
    command: str
    """Its command line, at most `probes.names.LONGEST` characters; empty where the system does not say."""
    ours: bool = False
    """True for a process that this tfmon, or its agent there, has started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuActivity:
    """How the parts of a GPU are used, each on average since the sample before.

    Units: percent of what each can do.
    """

    kernels_pct: Reading
    """Share of the time in which a kernel ran; copies alone do not count, other than in `GpuSample.busy_pct`."""
    sm_pct: Reading
    """Share of the multiprocessors that had work."""
    occupancy_pct: Reading
    """Warps that were there, of those that there is room for."""
    tensor_pct: Reading
    """Share of the cycles in which the tensor cores computed, in any precision."""
    memory_pct: Reading
    """Bandwidth of the GPU's own memory."""
    fp64_pct: Reading
    fp32_pct: Reading
    fp16_pct: Reading
    """Share of the cycles in which the units for 64, 32 and 16 bits computed, tensor cores not included."""
    nvlink_sent_bytes_per_s: Reading
    nvlink_received_bytes_per_s: Reading
    """From the GPU to others, and from others to it; 0 without NVLink."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """One GPU, or one instance of a GPU that is split up (MIG), as its driver sees it."""

    lane: str = ""
    host: str = ""
    """On which machine, as `LaneSpec.host` says."""
    at_ns: int
    key: str
    """The device's UUID."""
    index: int
    name: str
    kind: str = "nvidia"
    """`nvidia`, `mig` (an instance of an NVIDIA GPU), `amd` or `apple`."""
    part_of: str = ""
    """UUID of the physical GPU of a MIG instance; power, energy, temperature, clocks and PCIe are that GPU's."""
    hidden: bool = False
    """True for a GPU that no lane can use, because CUDA_VISIBLE_DEVICES or TensorFlow does not show it."""
    every_s: float = 1.0
    """How often it is sampled."""
    busy_pct: Reading
    """Share of time in which at least one kernel ran, averaged over the tick."""
    busy_max_pct: Reading = NOT_READ
    """The busiest sample within the tick."""
    busy_source: str
    """`samples` (true average over our tick), `gpm` (the same, of a MIG instance), `driver window` (its last
    1/6 to 1 s), `sysfs` or `ioreg`."""
    activity: GpuActivity | Missing = NOT_READ
    """What its parts did; from the driver's performance monitoring (GPM)."""
    used_bytes: Reading
    total_bytes: Reading
    reserved_bytes: Reading = NOT_READ
    """What the driver reserves; not in `used_bytes`."""
    unified: bool = False
    """True where the memory is the machine's own, shared with the CPU."""
    power_w: Reading
    power_source: str = ""
    """`energy counter` (true average over the last second or more) or `driver` (its own average)."""
    power_limit_w: Reading
    energy_j: Reading = NOT_READ
    """Used since the driver was loaded."""
    temperature_c: Reading
    sm_clock_mhz: Reading = NOT_READ
    sm_clock_max_mhz: Reading = NOT_READ
    clock_reasons: tuple[ClockReason, ...] | Missing = NOT_READ
    """What lowers the clocks; empty at full clocks."""
    pcie_sent_bytes_per_s: Reading = NOT_READ
    """From the GPU to the host."""
    pcie_received_bytes_per_s: Reading = NOT_READ
    """From the host to the GPU."""
    pcie_source: str = ""
    """`gpm` or `counter` (true average over the tick), or `20 ms peek` (every 5 s)."""
    pcie_generation: Reading = NOT_READ
    pcie_generation_max: Reading = NOT_READ
    """What both GPU and slot support."""
    pcie_width: Reading = NOT_READ
    pcie_width_max: Reading = NOT_READ
    pcie_warning: str = ""
    """What is wrong with the link, such as "4 of 16 lanes"; empty if nothing is."""
    ecc_errors: Reading = NOT_READ
    """Memory errors that could not be corrected, since the driver was loaded."""
    slow: tuple[SlowReading, ...] = ()
    """What the driver is slow to answer, and so is older than the sample."""
    faults: tuple[GpuFault, ...] = ()
    """What went wrong while tfmon watched; the latest last."""
    used_by_pid: dict[int, int | None] = field(default_factory=dict)
    """Memory of each process, as the driver numbers them; None where it gives no amount."""
    no_processes_reason: str = ""
    """Why the driver lists no processes; empty where it does."""
    busy_by_pid: dict[int, float] | Missing = NOT_READ
    """Share of the GPU's time in percent, by process; those that used none may be missing."""
    shares_since_ns: int | None = None
    """Beginning of the time that `busy_by_pid` is the mean of; None where that is not known."""
    shares_until_ns: int | None = None
    """Its end: the shares are read less often than the rest."""
    processes: dict[int, ProcessName] = field(default_factory=dict)
    """Who runs the processes of `used_by_pid` and `busy_by_pid`; those that cannot be told are missing."""
    no_names_reason: str = ""
    """Why none can be told; empty where they can."""
    foreign_pids: bool = False
    """True in a container, where the driver may number processes as the host does."""

    def age_s(self, name: str) -> float:
        """Return how much older than the sample a reading is, by its name in `slow`; 0 for one read with it."""
        return next(((self.at_ns - one.at_ns) / 1e9 for one in self.slow if one.name == name), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSample:
    """The machine as a whole, and what may disturb a race on it.

    Units: shares of CPU time and rates over the time since the sample before; 100 % of CPU is one core.
    """

    lane: str = ""
    host: str = ""
    """On which machine, as `LaneSpec.host` says."""
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
    """Read back from swap."""
    swap_out_bytes_per_s: Reading = NOT_READ
    """Written to swap."""
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

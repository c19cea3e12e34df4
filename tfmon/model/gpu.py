"""What is sampled of a GPU, in groups that are read together: by the probe that fills them and by who shows them.

The name of a reading is the same in every place, and is told once: no two groups have one of the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, TypeVar, cast

from tfmon.model.readings import NOT_READ, Missing, Reading, known

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class GpuLoad:
    """How busy a GPU is."""

    busy_pct: Reading = NOT_READ
    """Share of time in which at least one kernel ran, averaged over the tick."""
    busy_max_pct: Reading = NOT_READ
    """The busiest sample within the tick."""
    source: str = ""
    """`samples` (true average over our tick), `gpm` (the same, of a MIG instance), `driver window` (its last
    1/6 to 1 s), `sysfs` or `ioreg`."""


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """The memory of a GPU, as all its processes use it."""

    used_bytes: Reading = NOT_READ
    total_bytes: Reading = NOT_READ
    reserved_bytes: Reading = NOT_READ
    """What the driver reserves; not in `used_bytes`."""
    unified: bool = False
    """True where the memory is the machine's own, shared with the CPU."""

    @property
    def free_bytes(self) -> float | None:
        """The memory that is not used; None where that is not known."""
        used, total, reserved = known(self.used_bytes), known(self.total_bytes), known(self.reserved_bytes)
        return None if used is None or total is None else max(0.0, total - used - (reserved or 0.0))


@dataclass(frozen=True, slots=True)
class ProcessName:
    """Who runs what, of a process on a GPU, without control characters."""

    user: str
    """Empty where the system does not say."""
    command: str
    """Its command line, at most `probes.names.LONGEST` characters; empty where the system does not say."""
    ours: bool = False
    """True for a process that this tfmon, or its agent there, has started."""


@dataclass(frozen=True, slots=True)
class GpuProcesses:
    """Who uses a GPU and how much of it, by the number that the driver gives each process."""

    used_by_pid: dict[int, int | None] = field(default_factory=dict)
    """Memory of each process; None where the driver gives no amount."""
    no_list_reason: str = ""
    """Why the driver lists no processes; empty where it does."""
    busy_by_pid: dict[int, float] | Missing = NOT_READ
    """Share of the GPU's time in percent, by process; those that used none may be missing."""
    since_ns: int | None = None
    """Beginning of the time that `busy_by_pid` is the mean of; None where that is not known."""
    until_ns: int | None = None
    """Its end: the shares are read less often than the rest."""
    names: dict[int, ProcessName] = field(default_factory=dict)
    """Who runs them; those that cannot be told are missing."""
    no_names_reason: str = ""
    """Why none can be told; empty where they can."""
    foreign_pids: bool = False
    """True in a container, where the driver may number processes as the host does."""

    @property
    def shares(self) -> Mapping[int, float]:
        """The shares of the GPU's time that are known."""
        return {} if isinstance(self.busy_by_pid, Missing) else self.busy_by_pid

    def pids(self, without: Collection[int] = ()) -> list[int]:
        """Return the processes that are listed or took any time, other than these."""
        took = (pid for pid, share in self.shares.items() if share)
        return sorted({*self.used_by_pid, *took}.difference(without))

    def of_others(self, own: Collection[int] = ()) -> list[int]:
        """Return the processes that neither this tfmon started nor are in `own`."""
        return [pid for pid in self.pids(own) if not (pid in self.names and self.names[pid].ours)]


@dataclass(frozen=True, slots=True)
class GpuPower:
    """What a GPU draws; of a MIG instance what the whole GPU does."""

    power_w: Reading = NOT_READ
    power_limit_w: Reading = NOT_READ
    energy_j: Reading = NOT_READ
    """Used since the driver was loaded."""
    source: str = ""
    """`energy counter` (true average over the last second or more) or `driver` (its own average)."""


INFO, WARNING, ALARM = "info", "warning", "alarm"


@dataclass(frozen=True, slots=True)
class ClockReason:
    """Why a GPU does not run at full clocks."""

    text: str
    level: str
    """`INFO`, `WARNING` or `ALARM`."""


@dataclass(frozen=True, slots=True)
class GpuClocks:
    """How fast a GPU runs; of a MIG instance how fast the whole GPU does."""

    sm_clock_mhz: Reading = NOT_READ
    sm_clock_max_mhz: Reading = NOT_READ
    reasons: tuple[ClockReason, ...] | Missing = NOT_READ
    """What lowers the clocks; empty at full clocks."""

    def lowered_by(self, *levels: str) -> list[str]:
        """Return the reasons of these levels, in words; none where they are not known."""
        reasons = () if isinstance(self.reasons, Missing) else self.reasons
        return [one.text for one in reasons if one.level in levels]


@dataclass(frozen=True, slots=True)
class PcieLink:
    """The link between a GPU and its host."""

    pcie_generation: Reading = NOT_READ
    pcie_generation_max: Reading = NOT_READ
    """What both GPU and slot support."""
    pcie_width: Reading = NOT_READ
    pcie_width_max: Reading = NOT_READ
    warning: str = ""
    """What is wrong with the link, such as "4 of 16 lanes"; empty if nothing is."""


@dataclass(frozen=True, slots=True)
class PcieTraffic:
    """What goes over the link."""

    pcie_sent_bytes_per_s: Reading = NOT_READ
    """From the GPU to the host."""
    pcie_received_bytes_per_s: Reading = NOT_READ
    """From the host to the GPU."""
    source: str = ""
    """`gpm` or `counter` (true average over the tick), or `20 ms peek` (every 5 s)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuActivity:
    """How the parts of a GPU are used, each on average since the sample before.

    Units: percent of what each can do.
    """

    kernels_pct: Reading
    """Share of the time in which a kernel ran; copies alone do not count, other than in `GpuLoad.busy_pct`."""
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
    part_of: str = ""
    """UUID of the physical GPU of a MIG instance."""
    hidden: bool = False
    """True for a GPU that no lane can use, because CUDA_VISIBLE_DEVICES or TensorFlow does not show it."""
    every_s: float = 1.0
    """How often it is sampled."""
    load: GpuLoad = GpuLoad()
    activity: GpuActivity | Missing = NOT_READ
    """What its parts did; from the driver's performance monitoring (GPM)."""
    memory: GpuMemory = GpuMemory()
    processes: GpuProcesses = GpuProcesses()
    power: GpuPower = GpuPower()
    temperature_c: Reading = NOT_READ
    clocks: GpuClocks = GpuClocks()
    link: PcieLink = PcieLink()
    traffic: PcieTraffic = PcieTraffic()
    ecc_errors: Reading = NOT_READ
    """Memory errors that could not be corrected, since the driver was loaded."""
    slow: tuple[SlowReading, ...] = ()
    """What the driver is slow to answer, and so is older than the sample."""
    faults: tuple[GpuFault, ...] = ()
    """What went wrong while tfmon watched; the latest last."""

    def age_s(self, name: str) -> float:
        """Return how much older than the sample a reading is, by its name in `slow`; 0 for one read with it."""
        return next(((self.at_ns - one.at_ns) / 1e9 for one in self.slow if one.name == name), 0.0)

    def on_clock(self, here: Callable[[int], int]) -> GpuSample:
        """Return the sample with the stamps that `here` returns for those of another machine."""
        on_it = self.processes
        since_ns, until_ns = (None if one is None else here(one) for one in (on_it.since_ns, on_it.until_ns))
        return replace(
            self,
            at_ns=here(self.at_ns),
            processes=replace(on_it, since_ns=since_ns, until_ns=until_ns),
            slow=tuple(replace(one, at_ns=here(one.at_ns)) for one in self.slow),
            faults=tuple(replace(one, at_ns=here(one.at_ns)) for one in self.faults),
        )


def unread(part: Part, why: Missing) -> Part:
    """Return a sample, or a group of one, in which every reading is missing for one reason."""
    kind: Any = type(part)
    readings: dict[str, object] = {}
    for one in fields(kind):
        if one.default is NOT_READ:
            readings[one.name] = why
        elif is_dataclass(one.default):
            readings[one.name] = unread(getattr(part, one.name), why)
    result: Part = replace(cast(Any, part), **readings)
    return result

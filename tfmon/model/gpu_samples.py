"""Samples of a GPU, and its other users. Each reading's name is unique."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field, fields, is_dataclass, replace
from typing import Any, TypeVar, cast

from tfmon.model.event_base import Event
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.readings import NOT_READ, Missing, Reading, known

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class GpuLoad:
    """The load of a GPU."""

    busy_pct: Reading = NOT_READ
    busy_max_pct: Reading = NOT_READ
    source: str = ""
    """`samples` or `gpm` (mean over the tick), `driver window` (1/6 to 1 s), `sysfs` or `ioreg`."""


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """The memory of a GPU."""

    used_bytes: Reading = NOT_READ
    total_bytes: Reading = NOT_READ
    reserved_bytes: Reading = NOT_READ
    unified: bool = False

    @property
    def free_bytes(self) -> float | None:
        """The unused memory."""
        used, total, reserved = known(self.used_bytes), known(self.total_bytes), known(self.reserved_bytes)
        return None if used is None or total is None else max(0.0, total - used - (reserved or 0.0))


@dataclass(frozen=True, slots=True)
class ProcessName:
    """User and command of a process."""

    user: str
    command: str
    ours: bool = False


@dataclass(frozen=True, slots=True)
class GpuProcesses:
    """Processes on a GPU, by the driver's process number."""

    used_by_pid: dict[int, int | None] = field(default_factory=dict)
    no_list_reason: str = ""
    busy_by_pid: dict[int, float] | Missing = NOT_READ
    """In percent. Idle processes may be missing."""
    since_ns: int | None = None
    """Start of the averaging time."""
    until_ns: int | None = None
    names: dict[int, ProcessName] = field(default_factory=dict)
    no_names_reason: str = ""
    foreign_pids: bool = False
    """Whether the process numbers may be the host's."""

    @property
    def shares(self) -> Mapping[int, float]:
        """The known shares of the GPU's time."""
        return {} if isinstance(self.busy_by_pid, Missing) else self.busy_by_pid

    def pids(self, without: Collection[int] = ()) -> list[int]:
        """Return the active processes."""
        took = (pid for pid, share in self.shares.items() if share)
        return sorted({*self.used_by_pid, *took}.difference(without))

    def of_others(self, lane_pids: Collection[int] = ()) -> list[int]:
        """Return the processes of others."""
        return [pid for pid in self.pids(lane_pids) if not (pid in self.names and self.names[pid].ours)]


@dataclass(frozen=True, slots=True)
class GpuPower:
    """The power of a whole GPU."""

    power_w: Reading = NOT_READ
    power_limit_w: Reading = NOT_READ
    energy_j: Reading = NOT_READ
    source: str = ""
    """`energy counter` (mean over at least 1 s) or `driver`."""


INFO, WARNING, ALARM = "info", "warning", "alarm"


@dataclass(frozen=True, slots=True)
class ClockReason:
    """A reason for lowered clocks."""

    text: str
    level: str


@dataclass(frozen=True, slots=True)
class GpuClocks:
    """The clocks of a whole GPU."""

    sm_clock_mhz: Reading = NOT_READ
    sm_clock_max_mhz: Reading = NOT_READ
    reasons: tuple[ClockReason, ...] | Missing = NOT_READ

    def lowered_by(self, *levels: str) -> list[str]:
        """Return the reasons of these levels."""
        reasons = () if isinstance(self.reasons, Missing) else self.reasons
        return [reason.text for reason in reasons if reason.level in levels]


@dataclass(frozen=True, slots=True)
class PcieLink:
    """The PCIe link of a GPU."""

    pcie_generation: Reading = NOT_READ
    pcie_generation_max: Reading = NOT_READ
    pcie_width: Reading = NOT_READ
    pcie_width_max: Reading = NOT_READ
    warning: str = ""


@dataclass(frozen=True, slots=True)
class PcieTraffic:
    """Traffic from and to the GPU."""

    pcie_sent_bytes_per_s: Reading = NOT_READ
    pcie_received_bytes_per_s: Reading = NOT_READ
    source: str = ""
    """`gpm` or `counter` (mean over the tick), or `20 ms peek`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuActivity:
    """Means since the previous sample, in percent of the maximum."""

    kernels_pct: Reading
    sm_pct: Reading
    occupancy_pct: Reading
    tensor_pct: Reading
    memory_pct: Reading
    fp64_pct: Reading
    fp32_pct: Reading
    fp16_pct: Reading
    nvlink_sent_bytes_per_s: Reading
    nvlink_received_bytes_per_s: Reading


@dataclass(frozen=True, slots=True)
class SlowReading:
    """A reading at longer intervals."""

    name: str
    took_ms: float
    every_s: float
    at_ns: int


@dataclass(frozen=True, slots=True)
class GpuFault:
    """A fault that the driver reported."""

    at_ns: int
    code: int | None
    text: str
    by_program: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample(Event):
    """A sample of a GPU or MIG instance."""

    host: str = ""
    key: str
    index: int
    name: str
    part_of: str = ""
    hidden: bool = False
    every_s: float = 1.0
    load: GpuLoad = GpuLoad()
    activity: GpuActivity | Missing = NOT_READ
    memory: GpuMemory = GpuMemory()
    processes: GpuProcesses = GpuProcesses()
    power: GpuPower = GpuPower()
    temperature_c: Reading = NOT_READ
    clocks: GpuClocks = GpuClocks()
    link: PcieLink = PcieLink()
    traffic: PcieTraffic = PcieTraffic()
    ecc_errors: Reading = NOT_READ
    slow: tuple[SlowReading, ...] = ()
    faults: tuple[GpuFault, ...] = ()

    def age_s(self, name: str) -> float:
        """Return a reading's age relative to the sample."""
        return next(((self.at_ns - reading.at_ns) / 1e9 for reading in self.slow if reading.name == name), 0.0)

    def on_clock(self, convert_ns: Callable[[int], int]) -> GpuSample:
        """Return the sample with converted stamps."""
        processes = self.processes
        since_ns, until_ns = (
            None if time_ns is None else convert_ns(time_ns)
            for time_ns in (processes.since_ns, processes.until_ns)
        )
        return replace(
            self,
            at_ns=convert_ns(self.at_ns),
            processes=replace(processes, since_ns=since_ns, until_ns=until_ns),
            slow=tuple(replace(reading, at_ns=convert_ns(reading.at_ns)) for reading in self.slow),
            faults=tuple(replace(fault, at_ns=convert_ns(fault.at_ns)) for fault in self.faults),
        )


def unread(part: Part, why: Missing) -> Part:
    """Return a part with the reason for all readings."""
    kind: Any = type(part)
    readings: dict[str, object] = {}
    for field_ in fields(kind):
        if field_.default is NOT_READ:
            readings[field_.name] = why
        elif is_dataclass(field_.default):
            readings[field_.name] = unread(getattr(part, field_.name), why)
    result: Part = replace(cast(Any, part), **readings)
    return result


TAKEN_PCT = 5.0
"""Least reported share of GPU time."""
HELD = 0.1
"""Least reported share of GPU memory."""
MOST_TAKEN = 900
MOST_NAMES = 512
UNNAMED = "a process that the system does not name"


@dataclass(frozen=True, slots=True)
class Taken:
    """Use of a lane's GPU by others."""

    since_ns: int
    until_ns: int
    pct: float
    processes: int = 0
    first: ProcessName | None = None

    @property
    def counts(self) -> bool:
        """Whether the use is reported."""
        return self.pct >= TAKEN_PCT


def taken_by_others(processes: GpuProcesses, lane_pids: Collection[int]) -> Taken | None:
    """Return others' use of a GPU since the previous reading."""
    since_ns, until_ns, shares = processes.since_ns, processes.until_ns, processes.busy_by_pid
    if isinstance(shares, Missing) or since_ns is None or until_ns is None:
        return None
    if processes.foreign_pids and processes.used_by_pid.keys().isdisjoint(lane_pids):
        return None
    theirs = {pid: shares[pid] for pid in processes.of_others(lane_pids) if shares.get(pid)}
    most = max(theirs, key=lambda pid: theirs[pid], default=None)
    first = None if most is None else processes.names.get(most)
    return Taken(since_ns, until_ns, min(100.0, sum(theirs.values())), len(theirs), first)


def holders(processes: GpuProcesses, lane_pids: Collection[int] = ()) -> dict[int, int]:
    """Return the bytes of GPU memory by process of others, the largest first."""
    used = {pid: used for pid in processes.of_others(lane_pids) if (used := processes.used_by_pid.get(pid))}
    return dict(sorted(used.items(), key=lambda holder: (-holder[1], holder[0])))


def held_text(sample: GpuSample, device: str, lane_pids: Collection[int] = ()) -> str:
    """Describe the memory of other processes, if considerable."""
    result, total = holders(sample.processes, lane_pids), known(sample.memory.total_bytes)
    held = sum(result.values())
    if not total or held < HELD * total:
        return ""
    who = "another process holds" if len(result) == 1 else f"{len(result)} other processes hold"
    pid, used = next(iter(result.items()))
    most = "" if len(result) == 1 else f"; the most, {_gib(used)} GiB,"
    subject = f"{who} {_gib(held)} of the {_gib(total)} GiB of {device}"
    return f"{subject}{most}{' by' if most else ':'} {process_text(sample.processes.names.get(pid))} (pid {pid})"


def _gib(value: float) -> str:
    return f"{value / 2**30:.1f}"


def process_text(name: ProcessName | None) -> str:
    """Return such as "ana: python train.py"."""
    if name is None or not (name.user or name.command):
        return UNNAMED
    return ": ".join(filter(None, (name.user, name.command)))


def with_names(
    before: tuple[ProcessName, ...], processes: GpuProcesses, lane_pids: Collection[int]
) -> tuple[ProcessName, ...]:
    """Add the processes on a GPU to the names."""
    new = [
        name for pid in processes.of_others(lane_pids) if (name := processes.names.get(pid)) and name not in before
    ]
    return (*before, *dict.fromkeys(new))[-MOST_NAMES:] if new else before


def names_in(samples: Iterable[GpuSample]) -> set[ProcessName]:
    """Return the names of processes on GPUs, except tfmon's."""
    return {
        replace(name, ours=False)
        for sample in samples
        for name in sample.processes.names.values()
        if not name.ours
    }

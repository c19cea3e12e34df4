"""All readings of one NVIDIA GPU or instance (MIG) in one sample."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tfmon.model.gpu_samples import GpuFault, GpuLoad, GpuMemory, GpuProcesses, GpuSample, unread
from tfmon.model.lane_use import HIDDEN
from tfmon.model.readings import Missing, Reading
from tfmon.probes.base import Backoff, Gpu
from tfmon.probes.nvidia.activity import ActivityMeter
from tfmon.probes.nvidia.nvml import DeviceCalls, Nvml
from tfmon.probes.nvidia.power import ClockMeter, PowerMeter
from tfmon.probes.nvidia.usage import (
    INTEGRATED,
    NO_MAXIMUM,
    BusyMeter,
    LinkMeter,
    device_memory,
    machine_memory,
    memory_by_pid,
)
from tfmon.probes.process_names import read_names

SPLIT = Missing("not reported for a GPU that is split up (MIG)")
WSL = Missing("WSL2 does not report which process uses the GPU")
UNRELIABLE_LIST = Missing("this driver's list of processes is unreliable")
ECC_EVERY_S = 60.0
_UNCORRECTED, _VOLATILE = 1, 0  # since the driver was loaded


@dataclass(frozen=True, slots=True)
class DriverContext:
    """Facts about all devices."""

    clock_ns: Callable[[], int]
    root: Path
    no_process_list: Missing | None = None
    """Some drivers list wrong fields. On WSL2, functions about processes may crash."""
    foreign_pids: bool = False
    """The driver may use the host's pids."""
    before_s: float = 0.0
    """The first sample covers this time."""


class NvidiaDevice:
    """Reads one device; unsupported readings are switched off individually. Thread: the ticker's."""

    def __init__(
        self, gpu: Gpu, nvml: Nvml, handle: Any, context: DriverContext, *, whole: Any = None, split: bool = False
    ) -> None:
        """`whole` is the handle of an instance's GPU."""
        self._gpu, self._context, self._split = gpu, context, split
        self._backoff = Backoff(context.clock_ns)
        self._calls = calls = DeviceCalls(nvml, handle)
        self._whole = calls if whole is None else DeviceCalls(nvml, whole)
        self._busy = BusyMeter(calls, before_s=context.before_s)
        self._integrated = any(word in gpu.name for word in INTEGRATED)
        self._power, self._clocks = PowerMeter(self._whole), ClockMeter(self._whole)
        self._activity = ActivityMeter(calls, self._whole)
        self._link = LinkMeter(self._whole, self._activity if whole is None else None)

    def close(self) -> None:
        """Release memory while the library is open."""
        self._activity.close()

    def sample(self, at_ns: int, faults: tuple[GpuFault, ...]) -> GpuSample:
        """Return one sample, or raise DeviceFailedError. Units, Source: as the meter of each reading."""
        self._calls.at_ns = self._whole.at_ns = at_ns
        read = self._backoff.read
        power = read("power", self._power.read)  # at the time of the sample
        load = read("load", self._load)
        return GpuSample(
            at_ns=at_ns,
            key=self._gpu.uuid,
            index=self._gpu.index,
            name=self._gpu.name,
            part_of=self._gpu.part_of,
            power=power,
            load=load,
            memory=read("memory", self._memory),
            processes=read("processes", self._processes),
            clocks=read("clocks", self._clocks.read),
            activity=read("activity", lambda: SPLIT if self._split else self._activity.read()),
            link=read("link", lambda: self._link.link(load.busy_pct)),
            ecc_errors=read("errors", lambda: self._whole.every(ECC_EVERY_S, "errors", self._ecc_errors)),
            temperature_c=read("temperature", self._power.celsius),
            traffic=read("traffic", self._link.traffic),  # may wait for 40 ms
            slow=self._backoff.slow,
            faults=faults,
        )

    def _ecc_errors(self) -> Reading:
        return self._whole.number("nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _VOLATILE)

    def _load(self) -> GpuLoad:
        if self._calls is not self._whole:
            busy = self._activity.load()
            return unread(GpuLoad(), busy) if isinstance(busy, Missing) else GpuLoad(busy, NO_MAXIMUM, "gpm")
        return unread(GpuLoad(), SPLIT) if self._split else self._busy.read()

    def _memory(self) -> GpuMemory:
        own = partial(device_memory, self._calls)
        return self._calls.part("memory", GpuMemory(), own, *([machine_memory] if self._integrated else []))

    def _processes(self) -> GpuProcesses:
        used = self._context.no_process_list or memory_by_pid(self._calls)
        if used is WSL:
            busy: dict[int, float] | Missing = WSL
        elif self._split or self._gpu.part_of:
            busy = SPLIT
        else:
            busy = self._busy.by_pid(() if isinstance(used, Missing) else tuple(used))
        pids = [pid for users in (used, busy) if not isinstance(users, Missing) for pid in users]
        return GpuProcesses(
            used_by_pid={} if isinstance(used, Missing) else used,
            no_list_reason=used.reason if isinstance(used, Missing) else "",
            busy_by_pid=busy,
            since_ns=self._busy.shares_since_ns,
            until_ns=self._busy.shares_until_ns,
            names={} if self._context.foreign_pids else read_names(pids, self._context.root),
            no_names_reason=HIDDEN.reason if self._context.foreign_pids else "",
            foreign_pids=self._context.foreign_pids,
        )

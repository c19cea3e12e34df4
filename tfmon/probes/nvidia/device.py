"""All readings of one NVIDIA GPU or instance (MIG) in one sample."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from tfmon.model.gpu_samples import GpuFault, GpuLoad, GpuProcesses, GpuSample, ProcessName, unread
from tfmon.model.lane_use import HIDDEN
from tfmon.model.readings import Missing
from tfmon.probes.base import Backoff, Gpu, absent_gpu
from tfmon.probes.nvidia.activity import ActivityMeter
from tfmon.probes.nvidia.nvml import DeviceCalls, DeviceFailedError, Nvml, NvmlFailure, Paced
from tfmon.probes.nvidia.power import ClockMeter, PowerMeter
from tfmon.probes.nvidia.usage import INTEGRATED, NO_MAXIMUM, BusyMeter, LinkMeter, MemoryMeter
from tfmon.probes.process_names import ProcessNames

NOT_ATTACHED = "not read yet"
SPLIT = Missing("not reported for a GPU that is split up (MIG)")
WSL = Missing("WSL2 does not report which process uses the GPU")
ECC_EVERY_S = 60.0
_UNCORRECTED, _VOLATILE = 1, 0  # since the driver was loaded


@dataclass(frozen=True, slots=True)
class DriverContext:
    """Facts about all devices."""

    lists_processes: bool = True
    """Some drivers list wrong fields."""
    wsl: bool = False
    """Functions about processes may crash."""
    foreign_pids: bool = False
    """The driver may use the host's pids."""
    before_s: float = 0.0
    """The first sample covers this time."""
    names: ProcessNames | None = None


class _Meters:
    def __init__(self, name: str, own: DeviceCalls, whole: DeviceCalls, context: DriverContext) -> None:
        self.busy = BusyMeter(own, before_s=context.before_s)
        own_memory = not any(word in name for word in INTEGRATED)
        self.memory = MemoryMeter(own, own_memory=own_memory, lists_processes=context.lists_processes)
        self.power = PowerMeter(whole)
        self.clocks = ClockMeter(whole)
        self.activity = ActivityMeter(own, whole)
        self.link = LinkMeter(whole, self.activity if whole is own else None)
        self.ecc_errors = Paced(
            ECC_EVERY_S, lambda: whole.number("nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _VOLATILE)
        )
        self.is_instance = whole is not own


class NvidiaDevice:
    """Reads one device; unsupported readings are switched off individually. Thread: the ticker's."""

    def __init__(self, gpu: Gpu, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self.gpu = gpu
        self._backoff = Backoff(clock_ns)
        self.failure: NvmlFailure | None = None
        self.split = False
        self._meters: _Meters | None = None
        self._context = DriverContext()

    def attach(
        self,
        nvml: Nvml,
        handle: Any,
        context: DriverContext,
        *,
        whole: Any = None,
    ) -> None:
        """Read through this handle, and restart all rates."""
        self.close()
        own = DeviceCalls(nvml, handle)
        self._meters = _Meters(self.gpu.name, own, own if whole is None else DeviceCalls(nvml, whole), context)
        self._context, self.failure = context, None

    def detach(self, failure: NvmlFailure) -> None:
        """Return no readings until the device is attached again."""
        self.close()
        self._meters, self.failure = None, failure

    def close(self) -> None:
        """Release memory while the library is open."""
        if self._meters is not None:
            self._meters.activity.close()

    def sample(self, at_ns: int, faults: tuple[GpuFault, ...] = ()) -> GpuSample:
        """Return one sample. Units, Source: as the meter of each reading."""
        if self._meters is not None and self.failure is None:
            try:
                return self._sample(self._meters, at_ns, faults)
            except DeviceFailedError as error:
                self.failure = error.failure
        reason = NOT_ATTACHED if self.failure is None else self.failure.reason
        return absent_gpu(self.gpu, at_ns, reason, faults)

    def _sample(self, meters: _Meters, at_ns: int, faults: tuple[GpuFault, ...]) -> GpuSample:
        read = self._backoff.read
        power = read("power", lambda: meters.power.read(at_ns))  # at the time of the sample
        load = read("load", lambda: self._load(meters, at_ns))
        return GpuSample(
            at_ns=at_ns,
            key=self.gpu.uuid,
            index=self.gpu.index,
            name=self.gpu.name,
            part_of=self.gpu.part_of,
            power=power,
            load=load,
            memory=read("memory", meters.memory.read),
            processes=read("processes", lambda: self._processes(meters, at_ns)),
            clocks=read("clocks", lambda: meters.clocks.read(at_ns)),
            activity=read("activity", lambda: SPLIT if self.split else meters.activity.read(at_ns)),
            link=read("link", lambda: meters.link.link(at_ns, load.busy_pct)),
            ecc_errors=read("errors", lambda: meters.ecc_errors.at(at_ns)),
            temperature_c=read("temperature", meters.power.celsius),
            traffic=read("traffic", lambda: meters.link.traffic(at_ns)),  # may wait for 40 ms
            slow=self._backoff.slow,
            faults=faults,
        )

    def _load(self, meters: _Meters, at_ns: int) -> GpuLoad:
        if meters.is_instance:
            busy = meters.activity.load(at_ns)
            return unread(GpuLoad(), busy) if isinstance(busy, Missing) else GpuLoad(busy, NO_MAXIMUM, "gpm")
        return unread(GpuLoad(), SPLIT) if self.split else meters.busy.read()

    def _processes(self, meters: _Meters, at_ns: int) -> GpuProcesses:
        used = WSL if self._context.wsl else meters.memory.by_pid()
        if self._context.wsl:
            busy: dict[int, float] | Missing = WSL
        elif self.split or self.gpu.part_of:
            busy = SPLIT
        else:
            busy = meters.busy.by_pid(at_ns, () if isinstance(used, Missing) else tuple(used))
        pids = [pid for one in (used, busy) if not isinstance(one, Missing) for pid in one]
        names, no_names_reason = self._names(pids)
        return GpuProcesses(
            used_by_pid={} if isinstance(used, Missing) else used,
            no_list_reason=used.reason if isinstance(used, Missing) else "",
            busy_by_pid=busy,
            since_ns=meters.busy.shares_since_ns,
            until_ns=meters.busy.shares_until_ns,
            names=names,
            no_names_reason=no_names_reason,
            foreign_pids=self._context.foreign_pids,
        )

    def _names(self, pids: Collection[int]) -> tuple[dict[int, ProcessName], str]:
        if self._context.foreign_pids:
            return {}, HIDDEN.reason
        names = self._context.names
        return ({} if names is None else names.of(pids)), ""

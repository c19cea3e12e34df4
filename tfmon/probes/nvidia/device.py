"""One NVIDIA GPU, or one instance of a GPU that is split up (MIG), read through its driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfmon.model.readings import Missing
from tfmon.model.samples import GpuFault, GpuSample
from tfmon.probes.base import Gpu, absent_gpu, kind_of
from tfmon.probes.nvidia.faults import EccMeter
from tfmon.probes.nvidia.link import LinkMeter
from tfmon.probes.nvidia.nvml import DeviceCalls, DeviceTroubleError, Nvml, NvmlFailure
from tfmon.probes.nvidia.power import MEMORY, SM, ClockMeter, PowerMeter
from tfmon.probes.nvidia.usage import SPLIT, Busy, BusyMeter, MemoryMeter, has_own_memory
from tfmon.probes.surroundings import Jetson

NOT_ASKED = Missing("the driver was not asked yet")
WSL = Missing("WSL2 does not tell which process uses the GPU")


@dataclass(frozen=True, slots=True)
class DriverContext:
    """What is true of all devices of an open library."""

    lists_processes: bool = True
    """False for drivers whose list of processes has wrong fields."""
    wsl: bool = False
    """Functions about processes may crash there, and are not called."""
    foreign_pids: bool = False
    root: Path = Path("/")


class _Meters:
    """What reads one device for as long as it stays attached."""

    def __init__(self, name: str, own: DeviceCalls, whole: DeviceCalls, around: DriverContext) -> None:
        physical_gpu = None if has_own_memory(name) else Jetson(around.root)
        self.busy = BusyMeter(own, sysfs=physical_gpu.load_pct if physical_gpu else None)
        self.memory = MemoryMeter(own, own_memory=has_own_memory(name), lists_processes=around.lists_processes)
        self.power = PowerMeter(whole, sysfs_celsius=physical_gpu.celsius if physical_gpu else None)
        self.clocks = ClockMeter(whole)
        self.link = LinkMeter(whole)
        self.ecc = EccMeter(whole)


class NvidiaDevice:
    """Reads one device. What it cannot tell is switched off for it only, each reading for itself.

    Thread: the ticker's only.
    """

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.trouble: NvmlFailure | None = None
        """Why the whole device cannot be read; it is not asked again until it is attached anew."""
        self.split = False
        """True for a GPU whose instances (MIG) are devices of their own."""
        self.part_of = ""
        """For an instance the UUID of its GPU."""
        self._meters: _Meters | None = None
        self._around = DriverContext()

    def attach(
        self,
        nvml: Nvml,
        handle: Any,  # noqa: ANN401 - opaque
        around: DriverContext,
        *,
        whole: Any = None,  # noqa: ANN401 - opaque
        part_of: str = "",
    ) -> None:
        """Read through this handle from now on; nothing from before counts.

        An instance has the handle of its GPU as `whole`, of which it gives power, clocks and the link.
        """
        own = DeviceCalls(nvml, handle)
        self._meters = _Meters(self.gpu.name, own, own if whole is None else DeviceCalls(nvml, whole), around)
        self._around, self.trouble, self.part_of = around, None, part_of

    def detach(self, trouble: NvmlFailure) -> None:
        """Give no readings until the device is attached again."""
        self._meters, self.trouble = None, trouble

    def read(self, at_ns: int, faults: Sequence[GpuFault] = ()) -> GpuSample:
        """Take one sample.

        Units, Source: each reading's meter.
        """
        if self._meters is None or self.trouble is not None:
            reason = self.trouble.reason if self.trouble is not None else NOT_ASKED.reason
            return self.absent(at_ns, reason, faults)
        try:
            return self._read(self._meters, at_ns, faults)
        except DeviceTroubleError as error:
            self.trouble = error.refusal
            return self.absent(at_ns, error.refusal.reason, faults)

    def absent(self, at_ns: int, reason: str, faults: Sequence[GpuFault] = ()) -> GpuSample:
        """Return a sample without any reading, for one reason."""
        return absent_gpu(self.gpu, at_ns, reason, part_of=self.part_of, faults=faults)

    def _read(self, meters: _Meters, at_ns: int, faults: Sequence[GpuFault]) -> GpuSample:
        energy_j = meters.power.energy_j(at_ns)  # first: it is to be of the time of the sample
        power_w, power_source = meters.power.power(at_ns)
        busy = self._busy(meters)
        memory = meters.memory.read()
        held, shares = self._processes(meters, at_ns)
        sm_mhz, (sm_max, memory_max) = meters.clocks.mhz(SM), meters.clocks.max_mhz(at_ns)
        link, (ecc_errors, remapped_rows) = meters.link.link(at_ns), meters.ecc.counts(at_ns)
        clock_reasons = meters.clocks.reasons(sm_mhz, sm_max)
        memory_mhz, power_limit_w, celsius = (
            meters.clocks.mhz(MEMORY),
            meters.power.limit_w(at_ns),
            meters.power.celsius(),
        )
        traffic = meters.link.traffic(at_ns)  # last: it may wait for 40 ms
        return GpuSample(
            at_ns=at_ns,
            key=self.gpu.uuid,
            index=self.gpu.index,
            name=self.gpu.name,
            kind=kind_of(self.gpu),
            part_of=self.part_of,
            busy_pct=busy.pct,
            busy_max_pct=busy.max_pct,
            busy_source=busy.source,
            used_bytes=memory.used,
            total_bytes=memory.total,
            reserved_bytes=memory.reserved,
            unified=memory.unified,
            power_w=power_w,
            power_source=power_source,
            power_limit_w=power_limit_w,
            energy_j=energy_j,
            temperature_c=celsius,
            sm_clock_mhz=sm_mhz,
            sm_clock_max_mhz=sm_max,
            memory_clock_mhz=memory_mhz,
            memory_clock_max_mhz=memory_max,
            clock_reasons=clock_reasons,
            pcie_sent_bytes_per_s=traffic.sent,
            pcie_received_bytes_per_s=traffic.received,
            pcie_source=traffic.source,
            pcie_generation=link.generation,
            pcie_generation_max=link.generation_max,
            pcie_width=link.width,
            pcie_width_max=link.width_max,
            pcie_warning=meters.link.warning(link, busy.pct),
            ecc_errors=ecc_errors,
            remapped_rows=remapped_rows,
            faults=tuple(faults),
            used_by_pid={} if isinstance(held, Missing) else held,
            held_why=held.reason if isinstance(held, Missing) else "",
            busy_by_pid=shares,
            foreign_pids=self._around.foreign_pids,
        )

    def _busy(self, meters: _Meters) -> Busy:
        if self.split or self.part_of:
            return Busy(SPLIT, SPLIT)
        return meters.busy.read()

    def _processes(
        self, meters: _Meters, at_ns: int
    ) -> tuple[dict[int, int | None] | Missing, dict[int, float] | Missing]:
        """Return memory and share of time by process."""
        if self._around.wsl:
            return WSL, WSL
        held = meters.memory.held()
        if self.split or self.part_of:
            return held, SPLIT
        listed = () if isinstance(held, Missing) else tuple(held)
        return held, meters.busy.by_pid(at_ns, listed)

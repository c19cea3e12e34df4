"""All readings of one NVIDIA GPU or instance (MIG) in one sample."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tfmon.model.fast_dataclass import dataclass
from tfmon.model.gpu_samples import (
    ClockReason,
    GpuClocks,
    GpuFault,
    GpuLoad,
    GpuMemory,
    GpuPower,
    GpuProcesses,
    GpuSample,
    PcieLink,
    PcieTraffic,
    unread,
)
from tfmon.model.lane_use import HIDDEN
from tfmon.model.readings import Missing, Reading, known, scaled
from tfmon.probes.base import FIRST_SAMPLE, Backoff, CounterRate, Gpu
from tfmon.probes.machine import read_memory
from tfmon.probes.nvidia import nvml
from tfmon.probes.nvidia.activity import ActivityMeter
from tfmon.probes.nvidia.explain import HW_SLOWDOWN, explain
from tfmon.probes.processes import read_names

SPLIT = Missing("not reported for a GPU that is split up (MIG)")
WSL = Missing("WSL2 does not report which process uses the GPU")
UNRELIABLE_LIST = Missing("this driver's list of processes is unreliable")
NO_MAXIMUM = Missing("the driver reports only the mean of its window")
_SHARED = Missing("the GPU uses the machine's own memory")
INTEGRATED = ("nvgpu", "GB10", "Tegra", "Orin", "Thor")
"""Names of GPUs that use the machine's memory."""
ECC_EVERY_S = MAX_CLOCKS_EVERY_S = 60.0
LIMIT_EVERY_S, LINK_EVERY_S, PEEK_EVERY_S, ENERGY_EVERY_S = 30.0, 10.0, 5.0, 4.9
SHARES_EVERY_S = 1.9
"""The driver updates the shares every second tick."""
_UNCORRECTED, _VOLATILE = 1, 0  # since the driver was loaded
_MEAN_POWER = 185
"""NVML field POWER_AVERAGE: the mean of the last second, from Ampere on, except GA100."""
_ENERGY_SPAN_NS = 950_000_000
"""The energy counter steps every 10 to 100 ms."""
_SM = 1
_SLOWED = 0.8
_SENT, _RECEIVED, _UNSIGNED_INT = 197, 198, 1
"""NVML fields PCIE_COUNT_TX_BYTES (leaves the GPU) and PCIE_COUNT_RX_BYTES; and a type of 32 bits."""
_BUSY_PCT, _BUSY_SAMPLES = 50, 3


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
        self,
        gpu: Gpu,
        opened: nvml.Nvml,
        handle: Any,
        context: DriverContext,
        *,
        whole: Any = None,
        split: bool = False,
    ) -> None:
        """`whole` is the handle of an instance's GPU."""
        self._gpu, self._context, self._split = gpu, context, split
        self._backoff = Backoff(context.clock_ns)
        self._calls = calls = nvml.DeviceCalls(opened, handle)
        self._whole = calls if whole is None else nvml.DeviceCalls(opened, whole)
        self._integrated = any(word in gpu.name for word in INTEGRATED)
        self._activity = ActivityMeter(calls, self._whole)
        self._before_us = round(context.before_s * 1e6)
        self._busy_cursor: int | None = None
        self._shares_cursor: int | None = None
        self._shares_since_ns: int | None = None
        self._shares_until_ns: int | None = None
        self._energy_j: deque[tuple[int, float]] = deque()
        self._slowed_before = False
        self._sent, self._received = CounterRate(), CounterRate()
        self._busy_samples = 0

    def close(self) -> None:
        """Release memory while the library is open."""
        self._activity.close()

    def sample(self, at_ns: int, faults: tuple[GpuFault, ...]) -> GpuSample:
        """Return one sample, or raise DeviceFailedError. Units, Source: as the method of each reading."""
        self._calls.at_ns = self._whole.at_ns = at_ns
        read = self._backoff.read
        power = read("power", self._power)  # at the time of the sample
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
            clocks=read("clocks", self._clocks),
            activity=read("activity", lambda: SPLIT if self._split else self._activity.read()),
            link=read("link", lambda: self._link(load.busy_pct)),
            ecc_errors=read("errors", lambda: self._whole.every(ECC_EVERY_S, "errors", self._ecc_errors)),
            temperature_c=read("temperature", self._celsius),
            traffic=read("traffic", self._traffic),  # may wait for 40 ms
            slow=self._backoff.slow,
            faults=faults,
        )

    def _ecc_errors(self) -> Reading:
        return self._whole.number("nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _VOLATILE)

    def _load(self) -> GpuLoad:
        """Return mean and maximum since the previous sample, or the driver's mean of its last 1/6 to 1 s.

        The load is the percentage of time in which at least one kernel ran, however small.
        """
        if self._calls is not self._whole:
            busy = self._activity.load()
            return unread(GpuLoad(), busy) if isinstance(busy, Missing) else GpuLoad(busy, NO_MAXIMUM, "gpm")
        if self._split:
            return unread(GpuLoad(), SPLIT)
        return self._calls.part("busy", GpuLoad(), self._busy_by_samples, self._busy_in_window)

    def _busy_by_samples(self) -> GpuLoad:
        first, since = self._busy_cursor is None, self._busy_cursor or 0
        # The cursor is the driver's time stamp, because its clock differs between machines.
        kind, samples = self._calls.call("nvmlDeviceGetSamples", 1, since)
        newer = [sample for sample in samples if sample.timeStamp > since]
        self._busy_cursor = max((sample.timeStamp for sample in newer), default=since)
        if first:  # it returns earlier samples, too
            newer = [sample for sample in newer if self._busy_cursor - sample.timeStamp < self._before_us]
        values = [value for sample in newer if 0 <= (value := nvml.number(kind, sample.sampleValue)) <= 100]
        if not values:
            raise nvml.CallFailedError(nvml.NOT_FOUND)
        return GpuLoad(sum(values) / len(values), max(values), "samples")

    def _busy_in_window(self) -> GpuLoad:
        rates = self._calls.call("nvmlDeviceGetUtilizationRates")
        return GpuLoad(float(rates.gpu), NO_MAXIMUM, "driver window")

    def _memory(self) -> GpuMemory:
        ways = [self._device_memory, *([_machine_memory] if self._integrated else [])]
        return self._calls.part("memory", GpuMemory(), *ways)

    def _device_memory(self) -> GpuMemory:
        calls = self._calls
        answer = calls.call("nvmlDeviceGetMemoryInfo", version=calls.nvml.module.nvmlMemory_v2)
        total, free, reserved = float(answer.total), float(answer.free), float(answer.reserved)
        if total <= 0:  # a GPU that shares the machine's memory
            return _machine_memory()
        # In some drivers, `used` includes reserved memory.
        excludes_reserved = abs(total - reserved - free - answer.used) <= total / 1000
        used = float(answer.used) if excludes_reserved else max(0.0, total - free - reserved)
        return GpuMemory(used, total, reserved)

    def _processes(self) -> GpuProcesses:
        used = self._context.no_process_list or self._memory_by_pid()
        if used is WSL:
            busy: dict[int, float] | Missing = WSL
        elif self._split or self._gpu.part_of:
            busy = SPLIT
        else:
            busy = self._busy_by_pid(() if isinstance(used, Missing) else tuple(used))
        pids = [pid for users in (used, busy) if not isinstance(users, Missing) for pid in users]
        return GpuProcesses(
            used_by_pid={} if isinstance(used, Missing) else used,
            no_list_reason=used.reason if isinstance(used, Missing) else "",
            busy_by_pid=busy,
            since_ns=self._shares_since_ns,
            until_ns=self._shares_until_ns,
            names={} if self._context.foreign_pids else read_names(pids, self._context.root),
            no_names_reason=HIDDEN.reason if self._context.foreign_pids else "",
            foreign_pids=self._context.foreign_pids,
        )

    def _memory_by_pid(self) -> dict[int, int | None] | Missing:
        calls = self._calls
        processes = calls.first("processes", lambda: calls.call("nvmlDeviceGetComputeRunningProcesses_v3"))
        if isinstance(processes, Missing):
            return processes
        used: dict[int, int | None] = {}
        for process in processes:
            before, more = used.get(process.pid), process.usedGpuMemory
            used[process.pid] = more if before is None else before if more is None else before + more
        return used

    def _busy_by_pid(self, listed: Collection[int]) -> dict[int, float] | Missing:
        """Return each process's share in percent. A listed idle process has 0."""
        shares = self._calls.every(SHARES_EVERY_S, "shares", self._read_shares)
        return shares if isinstance(shares, Missing) else {**dict.fromkeys(listed, 0.0), **shares}

    def _read_shares(self) -> dict[int, float] | Missing:
        self._shares_since_ns, self._shares_until_ns = self._shares_until_ns, self._calls.at_ns
        return self._calls.first("shares", self._process_samples)

    def _process_samples(self) -> dict[int, float] | Missing:
        since = self._shares_cursor
        try:
            samples = self._calls.call("nvmlDeviceGetProcessUtilization", since or 0)
        except nvml.CallFailedError as error:
            if error.failure.code != nvml.NOT_FOUND:
                raise
            samples = []
        values: dict[int, list[float]] = defaultdict(list)
        # Entries may be old or lack a process.
        newer = [
            sample for sample in samples if sample.pid and sample.timeStamp > (since or 0) and sample.smUtil <= 100
        ]
        self._shares_cursor = newest = max((sample.timeStamp for sample in newer), default=since or 0)
        if since is None:
            some, newer = bool(newer), [sample for sample in newer if newest - sample.timeStamp < self._before_us]
            if some and not newer:
                return FIRST_SAMPLE
        for sample in newer:
            values[sample.pid].append(float(sample.smUtil))
        return {pid: sum(shares) / len(shares) for pid, shares in values.items()}

    def _power(self) -> GpuPower:
        """Return power, its limit and the energy used since the driver was loaded.

        Units: W as a mean over about the last second, or as the driver reports it without an energy counter; J.
        Reading the energy takes 3 ms of CPU on an H100.
        """
        calls = self._whole
        read_limit = partial(calls.number, "nvmlDeviceGetEnforcedPowerLimit", scale=1e-3)
        limit = calls.every(LIMIT_EVERY_S, "limit", read_limit)
        power: Reading = calls.first("mean power", self._mean_of_driver)
        if not isinstance(power, Missing):
            return GpuPower(power, limit, calls.every(ENERGY_EVERY_S, "energy", self._joules), "driver, 1 s")
        joules = self._joules()
        if not isinstance(joules, Missing):
            return GpuPower(self._mean_w(joules), limit, joules, "energy counter")
        self._energy_j.clear()
        power = calls.number("nvmlDeviceGetPowerUsage", scale=1e-3)
        return GpuPower(power, limit, joules, "" if isinstance(power, Missing) else "driver")

    def _mean_of_driver(self) -> float:
        (power,) = self._whole.fields(_MEAN_POWER)
        return nvml.number(power.valueType, power.value) / 1000

    def _joules(self) -> Reading:
        return self._whole.number("nvmlDeviceGetTotalEnergyConsumption", scale=1e-3)

    def _mean_w(self, joules: float) -> Reading:
        at_ns, seen = self._whole.at_ns, self._energy_j
        if seen and joules < seen[-1][1]:  # driver reload
            seen.clear()
        seen.append((at_ns, joules))
        while len(seen) > 2 and at_ns - seen[1][0] >= _ENERGY_SPAN_NS:
            seen.popleft()
        begun_ns, begun_j = seen[0]
        if at_ns - begun_ns < _ENERGY_SPAN_NS:
            return FIRST_SAMPLE
        return (joules - begun_j) * 1e9 / (at_ns - begun_ns)

    def _celsius(self) -> Reading:
        """Return the temperature. Source: `nvmlDeviceGetTemperatureV`; `nvmlDeviceGetTemperature`."""
        functions = ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature")
        ways = (partial(self._whole.call, function, 0) for function in functions)
        return scaled(self._whole.first("temperature", *ways), 1.0)

    def _clocks(self) -> GpuClocks:
        """Return the clock in MHz, the highest one and what lowers it."""
        calls = self._whole
        read_highest = partial(calls.number, "nvmlDeviceGetMaxClockInfo", _SM)
        highest = calls.every(MAX_CLOCKS_EVERY_S, "highest clock", read_highest)
        sm_mhz = calls.number("nvmlDeviceGetClockInfo", _SM)
        return GpuClocks(sm_mhz, highest, self._clock_reasons(sm_mhz, highest))

    def _clock_reasons(self, sm_mhz: Reading, max_mhz: Reading) -> tuple[ClockReason, ...] | Missing:
        bits = self._whole.first(
            "clock reasons",
            lambda: self._whole.call("nvmlDeviceGetCurrentClocksEventReasons"),
            lambda: self._whole.call("nvmlDeviceGetCurrentClocksThrottleReasons"),
        )
        if isinstance(bits, Missing):
            return bits
        # A hardware slowdown shows for an instant when the GPU changes its state.
        bits, slowed = int(bits), bool(int(bits) & HW_SLOWDOWN)
        slowed, self._slowed_before = slowed and self._slowed_before, slowed
        if not slowed:
            bits &= ~HW_SLOWDOWN
        now, highest = known(sm_mhz), known(max_mhz)
        return explain(bits, below=now is not None and highest is not None and now < _SLOWED * highest)

    def _traffic(self) -> PcieTraffic:
        """Return the bytes per second since the previous sample, or over 20 ms of the last 5 s.

        Counters of 32 bits overflow over 12 times a second at 50 GB/s (seen on an H100).
        `nvmlDeviceGetPcieThroughput` waits for 20 ms a direction.
        """
        peek = partial(self._whole.every, PEEK_EVERY_S, "peek", self._traffic_peek)
        return self._whole.part("pcie", PcieTraffic(), self._traffic_by_gpm, self._traffic_by_counters, peek)

    def _link(self, busy_pct: Reading) -> PcieLink:
        """Return generation and width of GPU and slot together, and a warning."""
        link = self._whole.every(LINK_EVERY_S, "link", self._read_link)
        return replace(link, warning=self._link_warning(link, busy_pct))

    def _link_warning(self, link: PcieLink, busy_pct: Reading) -> str:
        """Warn of too few lanes, or a low generation under load: without load it saves power."""
        busy = known(busy_pct)
        self._busy_samples = self._busy_samples + 1 if busy is not None and busy > _BUSY_PCT else 0
        width, widest = known(link.pcie_width), known(link.pcie_width_max)
        if width is not None and widest is not None and width < widest:
            return f"the PCIe link has {width:.0f} of {widest:.0f} lanes"
        now, highest = known(link.pcie_generation), known(link.pcie_generation_max)
        slow = now is not None and highest is not None and now < highest
        if slow and self._busy_samples >= _BUSY_SAMPLES:
            return f"the PCIe link runs at generation {now:.0f} of {highest:.0f} under load"
        return ""

    def _traffic_by_gpm(self) -> PcieTraffic:
        if self._calls is not self._whole:
            raise nvml.CallFailedError(nvml.NOT_SUPPORTED)
        return PcieTraffic(*self._activity.traffic(), "gpm")

    def _traffic_by_counters(self) -> PcieTraffic:
        values = self._whole.fields(_SENT, _RECEIVED)
        if any(value.valueType == _UNSIGNED_INT for value in values):
            raise nvml.CallFailedError(nvml.NOT_SUPPORTED)
        sent, received = (nvml.number(value.valueType, value.value) for value in values)
        at_ns = self._whole.at_ns
        return PcieTraffic(self._sent.per_s(sent, at_ns), self._received.per_s(received, at_ns), "counter")

    def _traffic_peek(self) -> PcieTraffic:
        sent, received = (self._whole.call("nvmlDeviceGetPcieThroughput", direction) for direction in (0, 1))
        return PcieTraffic(sent * 1000.0, received * 1000.0, "20 ms peek")

    def _read_link(self) -> PcieLink:
        return PcieLink(
            pcie_generation=self._whole.number("nvmlDeviceGetCurrPcieLinkGeneration"),
            pcie_generation_max=self._whole.number("nvmlDeviceGetMaxPcieLinkGeneration"),
            pcie_width=self._whole.number("nvmlDeviceGetCurrPcieLinkWidth"),
            pcie_width_max=self._whole.number("nvmlDeviceGetMaxPcieLinkWidth"),
        )


def _machine_memory() -> GpuMemory:
    try:
        total, available = read_memory()
    except OSError:
        raise nvml.CallFailedError(nvml.NOT_SUPPORTED) from None
    return GpuMemory(float(total - available), float(total), _SHARED, unified=True)

"""Load, memory, processes and PCIe traffic of one NVIDIA device."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import replace
from functools import partial

from tfmon.model.gpu_samples import GpuLoad, GpuMemory, PcieLink, PcieTraffic
from tfmon.model.readings import Missing, Reading, known
from tfmon.probes.base import FIRST_SAMPLE, CounterRate
from tfmon.probes.machine import read_memory
from tfmon.probes.nvidia.activity import ActivityMeter
from tfmon.probes.nvidia.nvml import NOT_FOUND, NOT_SUPPORTED, CallFailedError, DeviceCalls, number

SHARES_EVERY_S = 1.9
"""The driver updates the shares every second tick."""
PEEK_EVERY_S, LINK_EVERY_S = 5.0, 10.0
_SENT, _RECEIVED, _UNSIGNED_INT = 197, 198, 1
"""NVML fields PCIE_COUNT_TX_BYTES (leaves the GPU) and PCIE_COUNT_RX_BYTES; and a type of 32 bits."""
_BUSY_PCT, _BUSY_SAMPLES = 50, 3
NO_MAXIMUM = Missing("the driver reports only the mean of its window")
_SHARED = Missing("the GPU uses the machine's own memory")
INTEGRATED = ("nvgpu", "GB10", "Tegra", "Orin", "Thor")
"""Names of GPUs that use the machine's memory."""


class BusyMeter:
    """Reads the percentage of time in which at least one kernel ran, however small."""

    def __init__(self, calls: DeviceCalls, *, before_s: float = 0.0) -> None:
        self._calls = calls
        self._before_us = round(before_s * 1e6)
        self._cursor: int | None = None
        self._shares_cursor: int | None = None
        self.shares_since_ns: int | None = None
        self.shares_until_ns: int | None = None

    def read(self) -> GpuLoad:
        """Return mean and maximum since the previous sample, or the driver's mean of its last 1/6 to 1 s."""
        return self._calls.part("busy", GpuLoad(), self._samples, self._window)

    def by_pid(self, listed: Collection[int]) -> dict[int, float] | Missing:
        """Return each process's share in percent. A listed idle process has 0."""
        shares = self._calls.every(SHARES_EVERY_S, "shares", self._read_shares)
        return shares if isinstance(shares, Missing) else {**dict.fromkeys(listed, 0.0), **shares}

    def _samples(self) -> GpuLoad:
        first, since = self._cursor is None, self._cursor or 0
        # The cursor is the driver's time stamp, because its clock differs between machines.
        kind, samples = self._calls.call("nvmlDeviceGetSamples", 1, since)
        newer = [sample for sample in samples if sample.timeStamp > since]
        self._cursor = max((sample.timeStamp for sample in newer), default=since)
        if first:  # it returns earlier samples, too
            newer = [sample for sample in newer if self._cursor - sample.timeStamp < self._before_us]
        values = [value for sample in newer if 0 <= (value := number(kind, sample.sampleValue)) <= 100]
        if not values:
            raise CallFailedError(NOT_FOUND)
        return GpuLoad(sum(values) / len(values), max(values), "samples")

    def _window(self) -> GpuLoad:
        rates = self._calls.call("nvmlDeviceGetUtilizationRates")
        return GpuLoad(float(rates.gpu), NO_MAXIMUM, "driver window")

    def _read_shares(self) -> dict[int, float] | Missing:
        self.shares_since_ns, self.shares_until_ns = self.shares_until_ns, self._calls.at_ns
        return self._calls.first("shares", self._process_samples)

    def _process_samples(self) -> dict[int, float] | Missing:
        since = self._shares_cursor
        try:
            samples = self._calls.call("nvmlDeviceGetProcessUtilization", since or 0)
        except CallFailedError as error:
            if error.failure.code != NOT_FOUND:
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


def device_memory(calls: DeviceCalls) -> GpuMemory:
    """Return the memory of a device in use, in bytes."""
    answer = calls.call("nvmlDeviceGetMemoryInfo", version=calls.module.nvmlMemory_v2)
    total, free, reserved = float(answer.total), float(answer.free), float(answer.reserved)
    if total <= 0:  # a GPU that shares the machine's memory
        return machine_memory()
    # In some drivers, `used` includes reserved memory.
    excludes_reserved = abs(total - reserved - free - answer.used) <= total / 1000
    used = float(answer.used) if excludes_reserved else max(0.0, total - free - reserved)
    return GpuMemory(used, total, reserved)


def machine_memory() -> GpuMemory:
    """Return the memory of a GPU that uses the machine's."""
    try:
        total, available = read_memory()
    except OSError:
        raise CallFailedError(NOT_SUPPORTED) from None
    return GpuMemory(float(total - available), float(total), _SHARED, unified=True)


def memory_by_pid(calls: DeviceCalls) -> dict[int, int | None] | Missing:
    """Return the memory by process."""
    processes = calls.first("processes", lambda: calls.call("nvmlDeviceGetComputeRunningProcesses_v3"))
    if isinstance(processes, Missing):
        return processes
    used: dict[int, int | None] = {}
    for process in processes:
        before, more = used.get(process.pid), process.usedGpuMemory
        used[process.pid] = more if before is None else before if more is None else before + more
    return used


class LinkMeter:
    """Reads the link of one device."""

    def __init__(self, calls: DeviceCalls, activity: ActivityMeter | None = None) -> None:
        self._calls = calls
        self._activity = activity
        self._sent, self._received = CounterRate(), CounterRate()
        self._busy_samples = 0

    def traffic(self) -> PcieTraffic:
        """Return the bytes per second since the previous sample, or over 20 ms of the last 5 s.

        Counters of 32 bits overflow over 12 times a second at 50 GB/s (seen on an H100).
        `nvmlDeviceGetPcieThroughput` waits for 20 ms a direction.
        """
        peek = partial(self._calls.every, PEEK_EVERY_S, "peek", self._peek)
        return self._calls.part("pcie", PcieTraffic(), self._monitored, self._counters, peek)

    def link(self, busy_pct: Reading) -> PcieLink:
        """Return generation and width of GPU and slot together, and a warning."""
        link = self._calls.every(LINK_EVERY_S, "link", self._read_link)
        return replace(link, warning=self._warning(link, busy_pct))

    def _warning(self, link: PcieLink, busy_pct: Reading) -> str:
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

    def _monitored(self) -> PcieTraffic:
        if self._activity is None:
            raise CallFailedError(NOT_SUPPORTED)
        return PcieTraffic(*self._activity.traffic(), "gpm")

    def _counters(self) -> PcieTraffic:
        values = self._calls.fields(_SENT, _RECEIVED)
        if any(value.valueType == _UNSIGNED_INT for value in values):
            raise CallFailedError(NOT_SUPPORTED)
        sent, received = (number(value.valueType, value.value) for value in values)
        at_ns = self._calls.at_ns
        return PcieTraffic(self._sent.per_s(sent, at_ns), self._received.per_s(received, at_ns), "counter")

    def _peek(self) -> PcieTraffic:
        sent, received = (self._calls.call("nvmlDeviceGetPcieThroughput", direction) for direction in (0, 1))
        return PcieTraffic(sent * 1000.0, received * 1000.0, "20 ms peek")

    def _read_link(self) -> PcieLink:
        return PcieLink(
            pcie_generation=self._calls.number("nvmlDeviceGetCurrPcieLinkGeneration"),
            pcie_generation_max=self._calls.number("nvmlDeviceGetMaxPcieLinkGeneration"),
            pcie_width=self._calls.number("nvmlDeviceGetCurrPcieLinkWidth"),
            pcie_width_max=self._calls.number("nvmlDeviceGetMaxPcieLinkWidth"),
        )

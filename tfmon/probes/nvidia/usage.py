"""How busy an NVIDIA GPU is, and by whom."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

import psutil

from tfmon.model.readings import Missing, Reading
from tfmon.probes.base import FIRST_SAMPLE
from tfmon.probes.nvidia.nvml import NOT_FOUND, NOT_SUPPORTED, DeviceCalls, NvmlFailure, Paced

SAMPLES, DRIVER_WINDOW, SYSFS = "samples", "driver window", "sysfs"
SPLIT = Missing("the driver does not tell it of a GPU that is split up (MIG)")
SHARES_EVERY_S = 1.9
"""Every second tick: the driver renews the shares of the processes no faster."""
_VALUE_FIELDS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


@dataclass(frozen=True, slots=True)
class Busy:
    """How busy a device was."""

    pct: Reading
    max_pct: Reading
    source: str = ""


class BusyMeter:
    """Reads the load of one device.

    Units: percent of time in which at least one kernel ran; 100 can be a single multiprocessor.
    """

    def __init__(self, calls: DeviceCalls, *, sysfs: Callable[[], float | None] | None = None) -> None:
        self._calls = calls
        self._sysfs = sysfs
        self._cursor: int | None = None
        self._shares_cursor: int | None = None
        self._shares: Paced[dict[int, float] | Missing] = Paced(SHARES_EVERY_S, self._read_shares)

    def read(self) -> Busy:
        """Return mean and maximum since the sample before, or the driver's last 1/6 to 1 s.

        Source: `nvmlDeviceGetSamples` of GPU utilisation; `nvmlDeviceGetUtilizationRates().gpu`; on Jetson
        physical_gpus `load` in /sys.
        """
        busy = self._calls.first("busy", self._samples, self._window, self._board_load)
        return Busy(busy, busy) if isinstance(busy, Missing) else busy

    def by_pid(self, at_ns: int, listed: Collection[int]) -> dict[int, float] | Missing:
        """Return the share of each process in percent, every other tick; a listed one that used none has 0.

        Source: `nvmlDeviceGetProcessUtilization().smUtil`, the mean of its samples.
        """
        shares = self._shares.at(at_ns)
        return shares if isinstance(shares, Missing) else {**dict.fromkeys(listed, 0.0), **shares}

    def _samples(self) -> Busy | NvmlFailure:
        first, since = self._cursor is None, self._cursor or 0
        # The cursor is the driver's own stamp: which clock it counts on differs between machines.
        answer = self._calls.call("nvmlDeviceGetSamples", 1, since)
        if isinstance(answer, NvmlFailure):
            # With no samples at all, pynvml asks for an array of none and is told that its question is wrong.
            return NvmlFailure(NOT_FOUND) if answer.code == 2 else answer
        kind, samples = answer
        newer = [sample for sample in samples if sample.timeStamp > since]
        self._cursor = max((sample.timeStamp for sample in newer), default=since)
        values = [float(getattr(sample.sampleValue, _VALUE_FIELDS[kind])) for sample in newer]
        values = [value for value in values if 0 <= value <= 100]
        if first or not values:  # the first call gives what happened before we looked
            return NvmlFailure(NOT_FOUND)
        return Busy(sum(values) / len(values), max(values), SAMPLES)

    def _window(self) -> Busy | NvmlFailure:
        answer = self._calls.call("nvmlDeviceGetUtilizationRates")
        if isinstance(answer, NvmlFailure):
            return answer
        return Busy(float(answer.gpu), Missing("the driver tells only the mean of its window"), DRIVER_WINDOW)

    def _board_load(self) -> Busy | NvmlFailure:
        load = self._sysfs() if self._sysfs is not None else None
        if load is None:
            return NvmlFailure(NOT_SUPPORTED)
        return Busy(load, Missing("the system tells only one value"), SYSFS)

    def _read_shares(self) -> dict[int, float] | Missing:
        return self._calls.first("shares", self._process_samples)

    def _process_samples(self) -> dict[int, float] | Missing | NvmlFailure:
        since = self._shares_cursor
        samples = self._calls.call("nvmlDeviceGetProcessUtilization", since or 0)
        if isinstance(samples, NvmlFailure):
            if samples.code != NOT_FOUND:
                return samples
            samples = []  # nobody used the GPU
        values: dict[int, list[float]] = defaultdict(list)
        newest = since or 0
        for sample in samples:
            # The list may hold entries of no process and of long ago.
            if sample.pid and sample.timeStamp > (since or 0) and sample.smUtil <= 100:
                values[sample.pid].append(float(sample.smUtil))
                newest = max(newest, sample.timeStamp)
        self._shares_cursor = newest
        if since is None and values:  # the first call gives what happened before we looked
            return FIRST_SAMPLE
        return {pid: sum(shares) / len(shares) for pid, shares in values.items()}


# ---------------- memory of an NVIDIA GPU, and who holds it


_NO_RESERVE = Missing("this driver does not tell apart what it keeps for itself")
_SHARED = Missing("the GPU uses the machine's own memory")
_INTEGRATED = ("nvgpu", "GB10", "Tegra", "Orin", "Thor")
"""In the names of GPUs that have no memory of their own."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of a device, in bytes."""

    used: Reading
    total: Reading
    reserved: Reading
    unified: bool = False


def has_own_memory(name: str) -> bool:
    """Return False for GPUs that share the memory of the machine, as far as their names tell."""
    return not any(word in name for word in _INTEGRATED)


class MemoryMeter:
    """Reads the memory of one device."""

    def __init__(self, calls: DeviceCalls, *, own_memory: bool = True, lists_processes: bool = True) -> None:
        self._calls = calls
        self._own_memory = own_memory
        self._lists_processes = lists_processes

    def read(self) -> Memory:
        """Return what is used now.

        Source: `nvmlDeviceGetMemoryInfo`, its second version where the driver has it; for GPUs without memory
        of their own psutil `virtual_memory()`.
        """
        ways = (self._second, self._first) if self._own_memory else (self._second, self._first, _of_machine)
        answer = self._calls.first("memory", *ways)
        return Memory(answer, answer, answer) if isinstance(answer, Missing) else answer

    def held(self) -> dict[int, int | None] | Missing:
        """Return the memory of each process; None for one whose memory is not told.

        Source: `nvmlDeviceGetComputeRunningProcesses`, by the versions' own names.
        """
        if not self._lists_processes:
            return Missing("this driver's list of processes is not to be trusted")
        answer = self._calls.first(
            "processes",
            lambda: self._calls.call("nvmlDeviceGetComputeRunningProcesses_v3"),
            lambda: self._calls.call("nvmlDeviceGetComputeRunningProcesses_v2"),
        )
        return answer if isinstance(answer, Missing) else _by_pid(answer)

    def _second(self) -> Memory | NvmlFailure:
        version = getattr(self._calls.module, "nvmlMemory_v2", None)
        answer = self._calls.call("nvmlDeviceGetMemoryInfo", version=version)
        if isinstance(answer, NvmlFailure):
            return answer
        total, free, reserved = float(answer.total), float(answer.free), float(answer.reserved)
        if total <= 0:
            return _of_machine()
        # Whether `used` contains what the driver reserves is told both ways, so it is checked.
        apart = abs(total - reserved - free - answer.used) <= total / 1000
        return Memory(float(answer.used) if apart else max(0.0, total - free - reserved), total, reserved)

    def _first(self) -> Memory | NvmlFailure:
        answer = self._calls.call("nvmlDeviceGetMemoryInfo")
        if isinstance(answer, NvmlFailure):
            return answer
        # A total of 0 is how a GPU answers that shares the machine's memory.
        return Memory(float(answer.used), float(answer.total), _NO_RESERVE) if answer.total else _of_machine()


def _of_machine() -> Memory | NvmlFailure:
    try:
        memory = psutil.virtual_memory()
    except (OSError, psutil.Error):
        return NvmlFailure(NOT_SUPPORTED)
    return Memory(float(memory.total - memory.available), float(memory.total), _SHARED, unified=True)


def _by_pid(processes: Iterable[Any]) -> dict[int, int | None]:
    """Return memory by pid; on a GPU split into instances, a process in several of them counts in all."""
    held: dict[int, int | None] = {}
    for process in processes:
        before, more = held.get(process.pid), process.usedGpuMemory
        held[process.pid] = more if before is None else before if more is None else before + more
    return held

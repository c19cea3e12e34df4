"""Memory of an NVIDIA GPU, and who holds it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import psutil

from tfmon.model.readings import Missing, Reading
from tfmon.probes.nvidia_calls import DeviceCalls
from tfmon.probes.nvml import NOT_SUPPORTED, Refusal

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

    def _second(self) -> Memory | Refusal:
        version = getattr(self._calls.module, "nvmlMemory_v2", None)
        answer = self._calls.call("nvmlDeviceGetMemoryInfo", version=version)
        if isinstance(answer, Refusal):
            return answer
        total, free, reserved = float(answer.total), float(answer.free), float(answer.reserved)
        if total <= 0:
            return _of_machine()
        # Whether `used` contains what the driver reserves is told both ways, so it is checked.
        apart = abs(total - reserved - free - answer.used) <= total / 1000
        return Memory(float(answer.used) if apart else max(0.0, total - free - reserved), total, reserved)

    def _first(self) -> Memory | Refusal:
        answer = self._calls.call("nvmlDeviceGetMemoryInfo")
        if isinstance(answer, Refusal):
            return answer
        # A total of 0 is how a GPU answers that shares the machine's memory.
        return Memory(float(answer.used), float(answer.total), _NO_RESERVE) if answer.total else _of_machine()


def _of_machine() -> Memory | Refusal:
    try:
        memory = psutil.virtual_memory()
    except (OSError, psutil.Error):
        return Refusal(NOT_SUPPORTED)
    return Memory(float(memory.total - memory.available), float(memory.total), _SHARED, unified=True)


def _by_pid(processes: Iterable[Any]) -> dict[int, int | None]:
    """Return memory by pid; on a GPU split into instances, a process in several of them counts in all."""
    held: dict[int, int | None] = {}
    for process in processes:
        before, more = held.get(process.pid), process.usedGpuMemory
        held[process.pid] = more if before is None else before if more is None else before + more
    return held

"""One NVIDIA GPU, read through its driver."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tfmon.model.events import GpuSample
from tfmon.model.readings import Missing, Reading
from tfmon.probes.absent import absent_gpu
from tfmon.probes.base import Gpu
from tfmon.probes.nvml import (
    GPU_IS_LOST,
    NOT_FOUND,
    NOT_SUPPORTED,
    RESET_REQUIRED,
    UNINITIALIZED,
    UNKNOWN,
    UNSUPPORTED,
    Nvml,
    Refusal,
)

SAMPLES, DRIVER_WINDOW = "samples", "driver window"
_WHOLE_DEVICE = frozenset({GPU_IS_LOST, RESET_REQUIRED, UNINITIALIZED})
_UNKNOWN_IN_A_ROW = 3
_LIMIT_EVERY_NS = 30_000_000_000
_ENERGY_SPAN_NS = 950_000_000
"""The energy counter steps every 10 to 100 ms, so that over much less than a second it would mislead."""
_VALUE_FIELDS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")

NOT_ASKED = Missing("the driver was not asked yet")

T = TypeVar("T")


class _DeviceTroubleError(Exception):
    """The device as a whole cannot be asked any more."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class _Memory:
    used: float
    total: float


@dataclass(slots=True)
class _Attached:
    """What is remembered while a device stays attached."""

    off: set[tuple[str, int]] = field(default_factory=set)
    """Ways to take a reading that this GPU or its driver does not have."""
    why: dict[str, Refusal] = field(default_factory=dict)
    """Why the last way of a reading was switched off."""
    unknown: int = 0
    """Unknown errors in a row."""
    cursor: int | None = None
    """Stamp of the newest utilisation sample, on the driver's own clock; None before the first call."""
    energy: deque[tuple[int, int]] = field(default_factory=deque)
    """Our stamp and the energy counter in mJ, over the last second or a little more."""
    limit_w: Reading = NOT_ASKED
    limit_at_ns: int | None = None


class NvidiaDevice:
    """Reads one GPU. What it cannot tell is switched off for this device only, each reading for itself.

    Thread: the ticker's only.
    """

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.trouble: Refusal | None = None
        """Why the whole device cannot be read; it is not asked again until it is attached anew."""
        self._nvml: Nvml | None = None
        self._handle: Any = None
        self._seen = _Attached()

    def attach(self, nvml: Nvml, handle: Any, *, lists_processes: bool = True) -> None:  # noqa: ANN401 - opaque
        """Read through this handle from now on; nothing from before counts."""
        self._nvml, self._handle, self.trouble = nvml, handle, None
        self._seen = _Attached()
        if not lists_processes:
            self._seen.off.update({("processes", 0), ("processes", 1)})

    def detach(self, trouble: Refusal) -> None:
        """Give no readings until the device is attached again."""
        self._nvml, self._handle, self.trouble = None, None, trouble

    def read(self, at_ns: int) -> GpuSample:
        """Take one sample.

        Units: `busy_pct` as a mean over the time since the sample before where `busy_source` is "samples",
        else over the driver's last 1/6 to 1 s; `power_w` as a mean over the last second or more from the
        energy counter, on GPUs without one as the driver gives it; memory in bytes and temperature in °C, now.
        Source: each reading's function below.
        """
        if self._nvml is None or self.trouble is not None:
            reason = self.trouble.reason if self.trouble is not None else NOT_ASKED.reason
            return absent_gpu(self.gpu, at_ns, reason)
        try:
            return self._read(at_ns)
        except _DeviceTroubleError as error:
            self.trouble = error.refusal
            return absent_gpu(self.gpu, at_ns, error.refusal.reason)

    def _read(self, at_ns: int) -> GpuSample:
        busy = self._busy()
        busy_pct, busy_source = (busy, "") if isinstance(busy, Missing) else busy
        memory = self._memory()
        held = self._processes()
        return GpuSample(
            at_ns=at_ns,
            key=self.gpu.uuid,
            index=self.gpu.index,
            name=self.gpu.name,
            busy_pct=busy_pct,
            busy_source=busy_source,
            used_bytes=memory if isinstance(memory, Missing) else memory.used,
            total_bytes=memory if isinstance(memory, Missing) else memory.total,
            power_w=self._power(at_ns),
            power_limit_w=self._power_limit(at_ns),
            temperature_c=self._temperature(),
            held_by_pid={} if isinstance(held, Missing) else held,
        )

    # ------------------------------------------------------------ readings

    def _busy(self) -> tuple[float, str] | Missing:
        """Source: `nvmlDeviceGetSamples` of GPU utilisation; `nvmlDeviceGetUtilizationRates().gpu`."""
        return self._first("busy", self._busy_samples, self._busy_window)

    def _busy_samples(self) -> tuple[float, str] | Refusal:
        first, since = self._seen.cursor is None, self._seen.cursor or 0
        # The cursor is the driver's own stamp: which clock it counts on differs between machines.
        answer = self._call("nvmlDeviceGetSamples", 1, since)
        if isinstance(answer, Refusal):
            # With no samples at all, pynvml asks for an array of none and is told that its question is wrong.
            return Refusal(NOT_FOUND) if answer.code == 2 else answer
        kind, samples = answer
        newer = [sample for sample in samples if sample.timeStamp > since]
        self._seen.cursor = max((sample.timeStamp for sample in newer), default=since)
        values = [float(getattr(sample.sampleValue, _VALUE_FIELDS[kind])) for sample in newer]
        values = [value for value in values if 0 <= value <= 100]
        if first or not values:  # the first call gives what happened before we looked
            return Refusal(NOT_FOUND)
        return sum(values) / len(values), SAMPLES

    def _busy_window(self) -> tuple[float, str] | Refusal:
        answer = self._call("nvmlDeviceGetUtilizationRates")
        return answer if isinstance(answer, Refusal) else (float(answer.gpu), DRIVER_WINDOW)

    def _memory(self) -> _Memory | Missing:
        """Source: `nvmlDeviceGetMemoryInfo`, its second version where the driver has it."""
        return self._first("memory", self._memory_v2, self._memory_v1)

    def _memory_v2(self) -> _Memory | Refusal:
        version = getattr(self._module(), "nvmlMemory_v2", None)
        answer = self._call("nvmlDeviceGetMemoryInfo", version=version)
        if isinstance(answer, Refusal):
            return answer
        total, free, reserved = float(answer.total), float(answer.free), float(answer.reserved)
        if total <= 0:
            return Refusal(NOT_SUPPORTED)
        # Whether `used` contains what the driver reserves is told both ways, so it is checked.
        apart = abs(total - reserved - free - answer.used) <= total / 1000
        return _Memory(float(answer.used) if apart else max(0.0, total - free - reserved), total)

    def _memory_v1(self) -> _Memory | Refusal:
        answer = self._call("nvmlDeviceGetMemoryInfo")
        if isinstance(answer, Refusal):
            return answer
        # A total of 0 is how a GPU answers that shares the machine's memory.
        return _Memory(float(answer.used), float(answer.total)) if answer.total else Refusal(NOT_SUPPORTED)

    def _power(self, at_ns: int) -> Reading:
        """Source: `nvmlDeviceGetTotalEnergyConsumption`; `nvmlDeviceGetPowerUsage`."""
        answer: Reading = self._first("power", lambda: self._mean_power(at_ns), self._power_usage)
        return answer

    def _mean_power(self, at_ns: int) -> float | Missing | Refusal:
        millijoules = self._call("nvmlDeviceGetTotalEnergyConsumption")
        if isinstance(millijoules, Refusal):
            return millijoules
        seen = self._seen.energy
        if seen and millijoules < seen[-1][1]:  # the driver was loaded anew
            seen.clear()
        seen.append((at_ns, millijoules))
        while len(seen) > 2 and at_ns - seen[1][0] >= _ENERGY_SPAN_NS:
            seen.popleft()
        begun_ns, begun = seen[0]
        span_ns = at_ns - begun_ns
        if span_ns < _ENERGY_SPAN_NS:
            return Missing("first sample")
        return float((millijoules - begun) * 1e6 / span_ns)

    def _power_usage(self) -> float | Refusal:
        milliwatts = self._call("nvmlDeviceGetPowerUsage")
        return milliwatts if isinstance(milliwatts, Refusal) else milliwatts / 1000

    def _power_limit(self, at_ns: int) -> Reading:
        """Source: `nvmlDeviceGetEnforcedPowerLimit`, every 30 s."""
        if self._seen.limit_at_ns is None or at_ns - self._seen.limit_at_ns >= _LIMIT_EVERY_NS:
            answer = self._first("power limit", lambda: self._call("nvmlDeviceGetEnforcedPowerLimit"))
            self._seen.limit_w = answer if isinstance(answer, Missing) else answer / 1000
            self._seen.limit_at_ns = at_ns
        return self._seen.limit_w

    def _temperature(self) -> Reading:
        """Source: `nvmlDeviceGetTemperatureV`; `nvmlDeviceGetTemperature`; the GPU's own sensor."""
        answer = self._first(
            "temperature",
            lambda: self._call("nvmlDeviceGetTemperatureV", 0),
            lambda: self._call("nvmlDeviceGetTemperature", 0),
        )
        return answer if isinstance(answer, Missing) else float(answer)

    def _processes(self) -> dict[int, int | None] | Missing:
        """Source: `nvmlDeviceGetComputeRunningProcesses`, by the versions' own names."""
        answer = self._first(
            "processes",
            lambda: self._call("nvmlDeviceGetComputeRunningProcesses_v3"),
            lambda: self._call("nvmlDeviceGetComputeRunningProcesses_v2"),
        )
        return answer if isinstance(answer, Missing) else _held(answer)

    # ------------------------------------------------------------ asking

    def _first(self, reading: str, *ways: Callable[[], T | Refusal]) -> T | Missing:
        """Return what the first way gives that has an answer, else `Missing`.

        A way that this GPU or its driver does not have is not tried again.
        """
        why = self._seen.why.get(reading, Refusal(NOT_SUPPORTED))
        for number, way in enumerate(ways):
            if (reading, number) in self._seen.off:
                continue
            answer = way()
            if not isinstance(answer, Refusal):
                return answer
            why = answer
            if answer.code in UNSUPPORTED:
                self._seen.off.add((reading, number))
                self._seen.why[reading] = answer
        return Missing(why.reason)

    def _call(self, function: str, *arguments: object, **named: object) -> Any:  # noqa: ANN401 - from pynvml
        """Ask the driver about this device.

        Errors: _DeviceTroubleError when the answer says that the whole device is out of reach.
        """
        if self._nvml is None:
            return Refusal(UNINITIALIZED)
        answer = self._nvml.call(function, self._handle, *arguments, **named)
        code = answer.code if isinstance(answer, Refusal) else 0
        self._seen.unknown = self._seen.unknown + 1 if code == UNKNOWN else 0
        if code in _WHOLE_DEVICE or self._seen.unknown >= _UNKNOWN_IN_A_ROW:
            raise _DeviceTroubleError(answer)
        return answer

    def _module(self) -> Any:  # noqa: ANN401 - pynvml has no types
        return self._nvml.module if self._nvml is not None else None


def _held(processes: Iterable[Any]) -> dict[int, int | None]:
    """Return memory by pid; on a GPU split into instances, a process in several of them counts in all."""
    held: dict[int, int | None] = {}
    for process in processes:
        before, more = held.get(process.pid), process.usedGpuMemory
        held[process.pid] = more if before is None else before if more is None else before + more
    return held

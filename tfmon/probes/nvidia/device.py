"""One NVIDIA GPU, or one instance of a GPU that is split up (MIG): all its readings in one sample."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from tfmon.model.lane_use import HIDDEN
from tfmon.model.readings import GpuSample, Missing
from tfmon.probes.base import FIRST_SAMPLE, SHORTEST_NS, Backoff, Gpu, Readings, absent_gpu, kind_of
from tfmon.probes.nvidia.nvml import (
    INVALID_ARGUMENT,
    NOT_FOUND,
    NOT_SUPPORTED,
    UNSUPPORTED,
    DeviceCalls,
    DeviceFailedError,
    Nvml,
    NvmlFailure,
    Paced,
)
from tfmon.probes.nvidia.power import ClockMeter, PowerMeter
from tfmon.probes.nvidia.usage import BusyMeter, LinkMeter, MemoryMeter, has_own_memory, load
from tfmon.probes.process_names import ProcessNames

_BUSY, _MULTIPROCESSORS = 1, 2
"""GPM metrics: share of time with any work, share of the multiprocessors that were busy."""
NO_LOAD = Missing("the driver does not report the load of an instance (MIG) of this GPU")
_UNSUPPORTED = tuple(Missing(NvmlFailure(code).reason) for code in UNSUPPORTED)
_NO_MAXIMUM = Missing("the driver reports only the mean since the sample before")


class GpmMeter:
    """Reads the load of one instance. Of several compute instances in one GPU instance it is that of all.

    Source: `nvmlGpmQueryDeviceSupport`, `nvmlDeviceGetGpuInstanceId`, `nvmlGpmMigSampleGet` and
    `nvmlGpmMetricsGet` of two samples; for Hopper and later.
    """

    def __init__(self, own: DeviceCalls, whole: DeviceCalls) -> None:
        """Read the instance of the handle `own`, a part of the GPU of the handle `whole`."""
        self._own = own
        self._whole = whole
        self._number: int | None = None
        self._before: Any = None
        self._spare: Any = None
        self._at_ns = 0
        self._last = load(FIRST_SAMPLE)

    def read(self, at_ns: int) -> Readings:
        """Return the mean load since the previous sample."""
        if self._before is not None and at_ns - self._at_ns < SHORTEST_NS:
            return self._last  # the driver needs so much time between two samples
        answer = self._whole.first("gpm", lambda: self._read(at_ns))
        if isinstance(answer, Missing):
            answer = load(NO_LOAD if answer in _UNSUPPORTED else answer)
        self._last = answer
        return self._last

    def close(self) -> None:
        """Release the samples."""
        for sample in (self._before, self._spare):
            if sample is not None:
                self._whole.library("nvmlGpmSampleFree", sample)
        self._before = self._spare = None

    def _read(self, at_ns: int) -> Readings | NvmlFailure:
        failure = self._prepare()
        if failure is not None:
            return failure
        taken = self._whole.call("nvmlGpmMigSampleGet", self._number, self._spare)
        if isinstance(taken, NvmlFailure):
            return taken
        before, self._before, self._at_ns = self._before, self._spare, at_ns
        self._spare = before
        if before is None:
            return load(FIRST_SAMPLE)
        return self._between(before, self._before)

    def _prepare(self) -> NvmlFailure | None:
        """Find out once whether the device has this, and make room for a sample."""
        if self._number is None:
            support = self._whole.call("nvmlGpmQueryDeviceSupport")
            if isinstance(support, NvmlFailure):
                return support
            if not support.isSupportedDevice:
                return NvmlFailure(NOT_SUPPORTED)
            number = self._own.call("nvmlDeviceGetGpuInstanceId")
            if isinstance(number, NvmlFailure):
                return number
            self._number = number
        if self._spare is None:
            spare = self._whole.library("nvmlGpmSampleAlloc")
            if isinstance(spare, NvmlFailure):
                return spare
            self._spare = spare
        return None

    def _between(self, before: Any, after: Any) -> Readings | NvmlFailure:  # noqa: ANN401 - from pynvml
        module = self._whole.module
        known = module.c_nvmlGpmMetricsGet_t()
        known.version, known.numMetrics = module.NVML_GPM_METRICS_GET_VERSION, 2
        known.sample1, known.sample2 = before, after
        known.metrics[0].metricId, known.metrics[1].metricId = _BUSY, _MULTIPROCESSORS
        answer = self._whole.library("nvmlGpmMetricsGet", known)
        if isinstance(answer, NvmlFailure):
            # The two samples do not belong together, as after a change of the instances.
            return NvmlFailure(NOT_FOUND) if answer.code == INVALID_ARGUMENT else answer
        for metric in (known.metrics[0], known.metrics[1]):
            if metric.nvmlReturn == 0 and math.isfinite(metric.value):
                return load(min(100.0, max(0.0, float(metric.value))), _NO_MAXIMUM, "gpm")
        return NvmlFailure(int(known.metrics[0].nvmlReturn) or NOT_FOUND)


NOT_ATTACHED = "not read yet"
SPLIT = Missing("not reported for a GPU that is split up (MIG)")
WSL = Missing("WSL2 does not report which process uses the GPU")
_NO_FAULTS: Readings = {"faults": ()}
ECC_EVERY_S = 60.0
_UNCORRECTED, _VOLATILE = 1, 0  # since the driver was loaded


@dataclass(frozen=True, slots=True)
class DriverContext:
    """What applies to all devices of an open library."""

    lists_processes: bool = True
    """False for drivers whose list of processes has wrong fields."""
    wsl: bool = False
    """Functions about processes may crash under WSL2, and are not called."""
    foreign_pids: bool = False
    """The driver may number processes as the host of this container does."""
    before_s: float = 0.0
    """How much of the time before the first sample its loads cover."""
    names: ProcessNames | None = None
    """Who runs the listed processes; None where nobody asks."""


class _Meters:
    """Everything that reads one device for as long as it stays attached."""

    def __init__(self, name: str, own: DeviceCalls, whole: DeviceCalls, context: DriverContext) -> None:
        self.busy = BusyMeter(own, before_s=context.before_s)
        self.memory = MemoryMeter(own, own_memory=has_own_memory(name), lists_processes=context.lists_processes)
        self.power = PowerMeter(whole)
        self.clocks = ClockMeter(whole)
        self.link = LinkMeter(whole)
        self.ecc_errors = Paced(
            ECC_EVERY_S, lambda: whole.number("nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _VOLATILE)
        )
        self.gpm = GpmMeter(own, whole) if whole is not own else None
        """For an instance only."""


class NvidiaDevice:
    """Reads one device; what it does not support is switched off, each by itself. Thread: the ticker's only."""

    def __init__(self, gpu: Gpu, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self.gpu = gpu
        self._backoff = Backoff(clock_ns)
        self.failure: NvmlFailure | None = None
        """Why the whole device cannot be read; it is not read again until it is attached again."""
        self.split = False
        """True for a GPU whose instances (MIG) are devices of their own."""
        self.part_of = ""
        """For an instance the UUID of its GPU."""
        self._meters: _Meters | None = None
        self._context = DriverContext()

    def attach(
        self,
        nvml: Nvml,
        handle: Any,  # noqa: ANN401 - opaque
        context: DriverContext,
        *,
        whole: Any = None,  # noqa: ANN401 - opaque
        part_of: str = "",
    ) -> None:
        """Read through this handle from now on, and restart all rates; `whole` is an instance's GPU."""
        self.close()
        own = DeviceCalls(nvml, handle)
        self._meters = _Meters(self.gpu.name, own, own if whole is None else DeviceCalls(nvml, whole), context)
        self._context, self.failure, self.part_of = context, None, part_of

    def detach(self, failure: NvmlFailure) -> None:
        """Return no readings until the device is attached again."""
        self.close()
        self._meters, self.failure = None, failure

    def close(self) -> None:
        """Release what the library keeps for this device, as long as the library is open."""
        if self._meters is not None and self._meters.gpm is not None:
            self._meters.gpm.close()

    def sample(self, at_ns: int, faults: Readings = _NO_FAULTS) -> GpuSample:
        """Return one sample. Units, Source: as the meter of each reading."""
        if self._meters is not None and self.failure is None:
            try:
                return self._sample(self._meters, at_ns, faults)
            except DeviceFailedError as error:
                self.failure = error.failure
        return self.absent(at_ns, NOT_ATTACHED if self.failure is None else self.failure.reason, faults)

    def absent(self, at_ns: int, reason: str, faults: Readings = _NO_FAULTS) -> GpuSample:
        """Return a sample without any reading, for one reason."""
        return replace(absent_gpu(self.gpu, at_ns, reason, part_of=self.part_of), **faults)

    def _sample(self, meters: _Meters, at_ns: int, faults: Readings) -> GpuSample:
        read = self._backoff.read
        readings = dict(faults)
        readings |= read("power", lambda: meters.power.read(at_ns))  # first: it belongs to the time of the sample
        readings |= read("load", lambda: self._load(meters, at_ns))
        readings |= read("memory", meters.memory.read)
        readings |= read("processes", lambda: self._processes(meters, at_ns))
        readings |= read("clocks", lambda: meters.clocks.read(at_ns))
        readings |= read("link", lambda: meters.link.link(at_ns, readings["busy_pct"]))
        readings |= read("errors", lambda: {"ecc_errors": meters.ecc_errors.at(at_ns)})
        readings |= read("temperature", lambda: {"temperature_c": meters.power.celsius()})
        readings |= read("traffic", lambda: meters.link.traffic(at_ns))  # last: it may wait for 40 ms
        return GpuSample(
            at_ns=at_ns,
            key=self.gpu.uuid,
            index=self.gpu.index,
            name=self.gpu.name,
            kind=kind_of(self.gpu),
            part_of=self.part_of,
            slow=self._backoff.slow,
            foreign_pids=self._context.foreign_pids,
            **readings,
        )

    def _load(self, meters: _Meters, at_ns: int) -> Readings:
        if meters.gpm is not None:
            return meters.gpm.read(at_ns)
        if self.split:
            return load(SPLIT)
        return meters.busy.read()

    def _processes(self, meters: _Meters, at_ns: int) -> Readings:
        """Return memory and share of time by process."""
        used = WSL if self._context.wsl else meters.memory.by_pid()
        if self._context.wsl:
            busy: dict[int, float] | Missing = WSL
        elif self.split or self.part_of:
            busy = SPLIT
        else:
            busy = meters.busy.by_pid(at_ns, () if isinstance(used, Missing) else tuple(used))
        reason = used.reason if isinstance(used, Missing) else ""
        return {
            "used_by_pid": {} if reason else used,
            "no_processes_reason": reason,
            "busy_by_pid": busy,
            "shares_since_ns": meters.busy.shares_since_ns,
            "shares_until_ns": meters.busy.shares_until_ns,
            **self._names([pid for one in (used, busy) if not isinstance(one, Missing) for pid in one]),
        }

    def _names(self, pids: Collection[int]) -> Readings:
        """Return who runs processes. A number that may be the host's names another process here."""
        if self._context.foreign_pids:
            return {"processes": {}, "no_names_reason": HIDDEN.reason}
        names = self._context.names
        return {"processes": names.of(pids) if names is not None else {}, "no_names_reason": ""}

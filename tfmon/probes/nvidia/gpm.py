"""The load of an instance of a GPU that is split up (MIG), by the driver's GPU performance monitoring (GPM)."""

from __future__ import annotations

import math
from typing import Any

from tfmon.model.readings import Missing
from tfmon.probes.base import FIRST_SAMPLE, Readings
from tfmon.probes.nvidia.nvml import (
    INVALID_ARGUMENT,
    NOT_FOUND,
    NOT_SUPPORTED,
    UNSUPPORTED,
    DeviceCalls,
    NvmlFailure,
)

_BUSY, _MULTIPROCESSORS = 1, 2
"""GPM metrics: share of time with any work, share of the multiprocessors that were busy."""
_SHORTEST_NS = 100_000_000
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
        self._last: Readings = _busy(FIRST_SAMPLE)

    def read(self, at_ns: int) -> Readings:
        """Return the mean load since the previous sample."""
        if self._before is not None and at_ns - self._at_ns < _SHORTEST_NS:
            return self._last  # the driver needs so much time between two samples
        answer = self._whole.first("gpm", lambda: self._read(at_ns))
        if isinstance(answer, Missing):
            answer = _busy(NO_LOAD if answer in _UNSUPPORTED else answer)
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
            return _busy(FIRST_SAMPLE)
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
        asked = module.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = module.NVML_GPM_METRICS_GET_VERSION, 2
        asked.sample1, asked.sample2 = before, after
        asked.metrics[0].metricId, asked.metrics[1].metricId = _BUSY, _MULTIPROCESSORS
        answer = self._whole.library("nvmlGpmMetricsGet", asked)
        if isinstance(answer, NvmlFailure):
            # The two samples do not belong together, as after a change of the instances.
            return NvmlFailure(NOT_FOUND) if answer.code == INVALID_ARGUMENT else answer
        for metric in (asked.metrics[0], asked.metrics[1]):
            if metric.nvmlReturn == 0 and math.isfinite(metric.value):
                return _busy(min(100.0, max(0.0, float(metric.value))))
        return NvmlFailure(int(asked.metrics[0].nvmlReturn) or NOT_FOUND)


def _busy(mean: float | Missing) -> Readings:
    known = not isinstance(mean, Missing)
    return {
        "busy_pct": mean,
        "busy_max_pct": _NO_MAXIMUM if known else mean,
        "busy_source": "gpm" if known else "",
    }

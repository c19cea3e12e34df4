"""The use of a device's parts by GPM, from Hopper on."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from typing import Any

from tfmon.model.gpu_samples import GpuActivity
from tfmon.model.readings import Missing, Reading
from tfmon.probes.base import FIRST_SAMPLE, SHORTEST_NS
from tfmon.probes.nvidia import nvml

KERNELS = 1
"""As in `nvmlGpmMetricId_t`."""
_SM, _SENT, _RECEIVED, _NVLINK_RECEIVED, _NVLINK_SENT = 2, 20, 21, 60, 61
SHARES: Mapping[str, int] = {
    "kernels_pct": KERNELS, "sm_pct": _SM, "occupancy_pct": 3, "tensor_pct": 5, "memory_pct": 10,
    "fp64_pct": 11, "fp32_pct": 12, "fp16_pct": 13,
}  # fmt: skip
_RATES = (_SENT, _RECEIVED, _NVLINK_RECEIVED, _NVLINK_SENT)
_METRICS = (*SHARES.values(), *_RATES)
EVERY_S = 1.9
"""Every second tick: two calls take 2 ms of CPU on an H100."""
MIB = 2**20
NO_LOAD = Missing("the driver does not report the load of an instance (MIG) of this GPU")
NO_GPM = Missing("only told from Hopper on (compute capability 9.0)")
_UNSUPPORTED = tuple(Missing(nvml.NvmlFailure(code).reason) for code in nvml.UNSUPPORTED)
_NO_METRIC = Missing("the driver does not report this of this GPU")


class ActivityMeter:
    """Reads how the parts of one device are used, on average.

    Several compute instances in one GPU instance (MIG) share one figure.
    """

    def __init__(self, device: nvml.DeviceCalls, whole: nvml.DeviceCalls) -> None:
        self._device = device
        self._whole = whole
        self._ready = False
        self._instance: int | None = None
        self._before: Any = None
        self._spare: Any = None
        self._last: Mapping[int, Reading] | Missing = FIRST_SAMPLE

    def read(self) -> GpuActivity | Missing:
        """Return the shares, and the traffic over NVLink."""
        metrics = self._metrics()
        if isinstance(metrics, Missing):
            return NO_GPM if metrics in _UNSUPPORTED else metrics
        return GpuActivity(
            **{name: metrics[number] for name, number in SHARES.items()},
            nvlink_sent_bytes_per_s=metrics[_NVLINK_SENT],
            nvlink_received_bytes_per_s=metrics[_NVLINK_RECEIVED],
        )

    def load(self) -> Reading:
        """Return the load of an instance."""
        metrics = self._metrics()
        if isinstance(metrics, Missing):
            return NO_LOAD if metrics in _UNSUPPORTED else metrics
        return metrics[_SM] if isinstance(metrics[KERNELS], Missing) else metrics[KERNELS]

    def traffic(self) -> tuple[Reading, Reading]:
        """Return the bytes per second sent and received over PCIe; raises nvml.CallFailedError."""
        metrics = self._metrics()
        if metrics == FIRST_SAMPLE:
            return FIRST_SAMPLE, FIRST_SAMPLE
        if isinstance(metrics, Missing) or isinstance(metrics[_SENT], Missing):
            raise nvml.CallFailedError(nvml.NOT_SUPPORTED if metrics in _UNSUPPORTED else nvml.NOT_FOUND)
        return metrics[_SENT], metrics[_RECEIVED]

    def close(self) -> None:
        """Release the samples."""
        for sample in (self._before, self._spare):
            if sample is not None:
                with contextlib.suppress(nvml.CallFailedError):
                    self._whole.nvml.call("nvmlGpmSampleFree", sample)
        self._before = self._spare = None

    def _metrics(self) -> Mapping[int, Reading] | Missing:
        """Return new metrics, or the previous ones if it is too soon."""
        seldom = self._device is self._whole and not isinstance(self._last, Missing)
        every_s = EVERY_S if seldom else SHORTEST_NS / 1e9
        self._last = self._whole.every(every_s, "gpm", lambda: self._whole.first("gpm", self._read))
        return self._last

    def _read(self) -> Mapping[int, Reading] | Missing:
        self._prepare()
        if self._instance is None:
            self._whole.call("nvmlGpmSampleGet", self._spare)
        else:
            self._whole.call("nvmlGpmMigSampleGet", self._instance, self._spare)
        before, self._before = self._before, self._spare
        self._spare = before
        return FIRST_SAMPLE if before is None else self._between(before, self._before)

    def _prepare(self) -> None:
        if not self._ready:
            if not self._whole.call("nvmlGpmQueryDeviceSupport").isSupportedDevice:
                raise nvml.CallFailedError(nvml.NOT_SUPPORTED)
            if self._device is not self._whole:
                self._instance = self._device.call("nvmlDeviceGetGpuInstanceId")
            self._ready = True
        if self._spare is None:
            self._spare = self._whole.nvml.call("nvmlGpmSampleAlloc")

    def _between(self, before: Any, later: Any) -> Mapping[int, Reading]:
        module = self._whole.nvml.module
        known = module.c_nvmlGpmMetricsGet_t()
        known.version, known.numMetrics = module.NVML_GPM_METRICS_GET_VERSION, len(_METRICS)
        known.sample1, known.sample2 = before, later
        for index, number in enumerate(_METRICS):
            known.metrics[index].metricId = number
        self._whole.nvml.call("nvmlGpmMetricsGet", known)
        values = {number: _value(known.metrics[index]) for index, number in enumerate(_METRICS)}
        if all(isinstance(values[number], Missing) for number in (KERNELS, _SM)):
            raise nvml.CallFailedError(int(known.metrics[0].nvmlReturn) or nvml.NOT_FOUND)
        return {
            number: value if isinstance(value, Missing) else value * MIB if number in _RATES else min(100.0, value)
            for number, value in values.items()
        }


def _value(metric: Any) -> Reading:
    good = metric.nvmlReturn == 0 and math.isfinite(metric.value)
    return max(0.0, float(metric.value)) if good else _NO_METRIC

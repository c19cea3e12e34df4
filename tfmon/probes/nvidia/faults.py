"""What went wrong in NVIDIA GPUs: memory errors, and the driver's XID messages."""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Any

from tfmon.model.readings import Missing, Reading
from tfmon.model.samples import GpuFault
from tfmon.probes.nvidia.nvml import TIMEOUT, DeviceCalls, Nvml, NvmlFailure, Paced, PhysicalGpu

ECC_EVERY_S = 60.0
KEPT = 8
_MOST_AT_ONCE = 32
_UNCORRECTED, _VOLATILE = 1, 0
_XIDS = {
    13: ("a kernel did something illegal", True),
    31: ("a kernel touched memory that is not its own", True),
    43: ("a program was stopped after an error of its own", True),
    45: ("a program was ended, and what it had on the GPU was cleaned up", True),
    48: ("a memory error that could not be corrected", False),
    63: ("a row of memory is to be replaced", False),
    64: ("a row of memory could not be replaced", False),
    68: ("the video decoder failed", True),
    79: ("the GPU fell off the bus", False),
    94: ("a memory error that hit one program only", False),
    95: ("a memory error that may have hit every program", False),
    109: ("switching between programs took too long", True),
    119: ("the GPU's own processor does not answer", False),
    120: ("the GPU's own processor failed", False),
}
"""XID messages, and whether a program is to blame. Source: NVIDIA's "XID Errors" document."""


class EccMeter:
    """Reads the counts of memory errors of one device, every minute."""

    def __init__(self, calls: DeviceCalls) -> None:
        self._calls = calls
        self._counts = Paced(ECC_EVERY_S, lambda: (self._read_errors(), self._read_rows()))

    def counts(self, at_ns: int) -> tuple[Reading, Reading]:
        """Return the uncorrected errors since the driver was loaded, and the rows that were ever replaced.

        Source: `nvmlDeviceGetTotalEccErrors`, `nvmlDeviceGetRemappedRows`.
        """
        return self._counts.at(at_ns)

    def _read_errors(self) -> Reading:
        return self._calls.number("ecc", "nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _VOLATILE)

    def _read_rows(self) -> Reading:
        rows = self._calls.first("rows", lambda: self._calls.call("nvmlDeviceGetRemappedRows"))
        return rows if isinstance(rows, Missing) else float(rows[0] + rows[1])


def explain_xid(number: int, at_ns: int) -> GpuFault:
    """Put one of the driver's messages in words."""
    text, by_program = _XIDS.get(number, ("the driver reported an error", False))
    return GpuFault(at_ns, number, f"{text} (XID {number})", by_program)


class FaultLog:
    """Hears the XID messages of all devices of an open library.

    The driver is asked without waiting, once a tick: a thread of its own would be one more that can hang.
    Source: `nvmlDeviceRegisterEvents`, `nvmlEventSetWait`; only messages after `open` are heard, on Linux.
    """

    def __init__(self) -> None:
        self._nvml: Nvml | None = None
        self._events: Any = None
        self._listening: frozenset[str] = frozenset()
        self._heard: dict[str, deque[GpuFault]] = defaultdict(lambda: deque(maxlen=KEPT))

    def open(self, nvml: Nvml, physical_gpus: Iterable[PhysicalGpu]) -> None:
        """Listen to these devices, as far as the driver lets us."""
        self._nvml, self._events, self._listening = None, None, frozenset()
        if sys.platform != "linux":
            return
        events = nvml.call("nvmlEventSetCreate")
        if isinstance(events, NvmlFailure):
            return
        kind = getattr(nvml.module, "nvmlEventTypeXidCriticalError", 8)
        answers = {
            physical_gpu.uuid: nvml.call("nvmlDeviceRegisterEvents", physical_gpu.handle, kind, events)
            for physical_gpu in physical_gpus
        }
        self._listening = frozenset(
            uuid for uuid, answer in answers.items() if not isinstance(answer, NvmlFailure)
        )
        if not self._listening:
            nvml.call("nvmlEventSetFree", events)
            return
        self._nvml, self._events = nvml, events

    def listen(self, at_ns: int) -> None:
        """Take in what was reported since the last time."""
        for _ in range(_MOST_AT_ONCE):
            if self._nvml is None:
                return
            data = self._nvml.call("nvmlEventSetWait_v2", self._events, 0)
            if isinstance(data, NvmlFailure):
                if data.code != TIMEOUT:
                    self._listening = frozenset()
                return
            uuid = self._nvml.call("nvmlDeviceGetUUID", data.device)
            if isinstance(uuid, str):
                self._heard[uuid].append(explain_xid(int(data.eventData), at_ns))

    def hears(self, uuid: str) -> bool:
        """Return whether a fault of this device would be heard."""
        return uuid in self._listening

    def of(self, uuid: str) -> tuple[GpuFault, ...]:
        """Return what was heard of a device, the latest last."""
        return tuple(self._heard[uuid]) if uuid in self._heard else ()

    def close(self) -> None:
        """Let go of the driver; what was heard stays."""
        self._listening = frozenset()
        if self._nvml is not None:
            self._nvml.call("nvmlEventSetFree", self._events)
        self._nvml, self._events = None, None

"""What went wrong in NVIDIA GPUs: memory errors, and the driver's XID messages."""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Any

from tfmon.model.readings import GpuFault, Missing, Reading
from tfmon.probes.base import Readings
from tfmon.probes.nvidia.nvml import TIMEOUT, DeviceCalls, Listed, Nvml, NvmlFailure, Paced

ECC_EVERY_S = 60.0
KEPT = 8
_MOST_AT_ONCE = 32
_UNCORRECTED, _VOLATILE = 1, 0
_XIDS = {
    13: ("a kernel did something illegal", True),
    31: ("a kernel accessed memory that it does not own", True),
    43: ("a program was stopped after an error of its own", True),
    45: ("a program was ended, and what it had on the GPU was cleaned up", True),
    48: ("a memory error that could not be corrected", False),
    63: ("a row of memory will be replaced", False),
    64: ("a row of memory could not be replaced", False),
    68: ("the video decoder failed", True),
    79: ("the GPU fell off the bus", False),
    94: ("a memory error that affected one program only", False),
    95: ("a memory error that may have affected every program", False),
    109: ("switching between programs took too long", True),
    119: ("the GPU's own processor does not answer", False),
    120: ("the GPU's own processor failed", False),
}
"""XID messages, and whether a program is to blame. Source: NVIDIA's "XID Errors" document."""


class EccMeter:
    """Reads the counts of memory errors of one device, every minute."""

    def __init__(self, calls: DeviceCalls) -> None:
        self._calls = calls
        self._counts = Paced(ECC_EVERY_S, self._read_counts)

    def read(self, at_ns: int) -> Readings:
        """Return the uncorrected errors since the driver was loaded, and the rows ever replaced.

        Source: `nvmlDeviceGetTotalEccErrors`, `nvmlDeviceGetRemappedRows`.
        """
        return self._counts.at(at_ns)

    def _read_counts(self) -> Readings:
        rows = self._calls.first("rows", lambda: self._calls.call("nvmlDeviceGetRemappedRows"))
        remapped: Reading = rows if isinstance(rows, Missing) else float(rows[0] + rows[1])
        errors = self._calls.number("nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _VOLATILE)
        return {"ecc_errors": errors, "remapped_rows": remapped}


def explain_xid(number: int, at_ns: int) -> GpuFault:
    """Return one of the driver's messages in words."""
    text, by_program = _XIDS.get(number, ("the driver reported an error", False))
    return GpuFault(at_ns, number, f"{text} (XID {number})", by_program)


class FaultLog:
    """Collects the XID messages of all devices of an open library.

    The driver is polled once a tick, without waiting: a thread of its own would be one more that can hang.
    Source: `nvmlDeviceRegisterEvents`, `nvmlEventSetWait`; Linux only, and only messages after `open`.
    """

    def __init__(self) -> None:
        self._nvml: Nvml | None = None
        self._events: Any = None
        self._watched: frozenset[str] = frozenset()
        self._faults: dict[str, deque[GpuFault]] = defaultdict(lambda: deque(maxlen=KEPT))

    def open(self, nvml: Nvml, gpus: Iterable[Listed]) -> None:
        """Register for the messages of these devices, as far as the driver permits."""
        self._nvml, self._events, self._watched = None, None, frozenset()
        if sys.platform != "linux":
            return
        events = nvml.call("nvmlEventSetCreate")
        if isinstance(events, NvmlFailure):
            return
        kind = getattr(nvml.module, "nvmlEventTypeXidCriticalError", 8)
        answers = {gpu.uuid: nvml.call("nvmlDeviceRegisterEvents", handle, kind, events) for gpu, handle in gpus}
        self._watched = frozenset(uuid for uuid, one in answers.items() if not isinstance(one, NvmlFailure))
        if not self._watched:
            nvml.call("nvmlEventSetFree", events)
            return
        self._nvml, self._events = nvml, events

    def poll(self, at_ns: int) -> None:
        """Collect what was reported since the previous call."""
        for _ in range(_MOST_AT_ONCE):
            if self._nvml is None:
                return
            data = self._nvml.call("nvmlEventSetWait_v2", self._events, 0)
            if isinstance(data, NvmlFailure):
                if data.code != TIMEOUT:
                    self._watched = frozenset()
                return
            uuid = self._nvml.call("nvmlDeviceGetUUID", data.device)
            if isinstance(uuid, str):
                self._faults[uuid].append(explain_xid(int(data.eventData), at_ns))

    def of(self, uuid: str) -> Readings:
        """Return the faults of a device, the latest last, and whether a new one would be reported."""
        faults = tuple(self._faults[uuid]) if uuid in self._faults else ()
        return {"faults": faults, "faults_reported": uuid in self._watched}

    def close(self) -> None:
        """Release the driver; the faults are kept."""
        self._watched = frozenset()
        if self._nvml is not None:
            self._nvml.call("nvmlEventSetFree", self._events)
        self._nvml, self._events = None, None

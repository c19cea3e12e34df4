"""The meaning of the driver's clock reasons and messages."""

from __future__ import annotations

import contextlib
from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Any

from tfmon.model.gpu_samples import ALARM, INFO, WARNING, ClockReason, GpuFault
from tfmon.probes.nvidia.nvml import CallFailedError, Listed, Nvml

POWER_CAP, HW_SLOWDOWN = 0x4, 0x8
_REASONS = {
    0x1: ("idle", INFO),
    0x2: ("clocks fixed by a user's setting", INFO),
    POWER_CAP: ("at its power limit", INFO),
    HW_SLOWDOWN: ("hardware slowdown, clocks halved or worse: heat or power supply", ALARM),
    0x10: ("limited to the slowest GPU of its sync group", INFO),
    0x20: ("hot: the GPU or its memory is at its highest working temperature", WARNING),
    0x40: ("overheating: clocks halved or worse", ALARM),
    0x80: ("slowed down by a signal of the power supply", ALARM),
    0x100: ("limited by the clocks of a display", INFO),
    0x200: ("at an electrical limit of the hardware", INFO),
    0x400: ("at a voltage limit, for reliability", INFO),
}
"""The driver's clock event reasons. Source: nvml.h, "NVML Clock Event Reasons"."""


def explain(bits: int, *, below: bool) -> tuple[ClockReason, ...]:
    """Explain the driver's bits; `below`: the clock is well below its highest."""
    result: list[ClockReason] = []
    for bit, (text, level) in _REASONS.items():
        if bits & bit:
            result.append(ClockReason(text, WARNING if bit == POWER_CAP and below else level))
    other = bits & ~sum(_REASONS)
    if other:
        result.append(ClockReason(f"for a reason this tfmon does not know ({other:#x})", INFO))
    return tuple(result)


KEPT = 8
_MOST_AT_ONCE = 32
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
"""Whether a program is to blame. Source: NVIDIA's "XID Errors" document."""


def explain_xid(number: int, at_ns: int) -> GpuFault:
    """Explain one of the driver's messages."""
    text, by_program = _XIDS.get(number, ("the driver reported an error", False))
    return GpuFault(at_ns, number, f"{text} (XID {number})", by_program)


class FaultLog:
    """Collects the XID messages of all devices since `open`.

    Polls the driver once a tick: a waiting thread could hang.
    """

    def __init__(self) -> None:
        self._nvml: Nvml | None = None
        self._events: Any = None
        self._faults: dict[str, deque[GpuFault]] = defaultdict(lambda: deque(maxlen=KEPT))

    def open(self, nvml: Nvml, gpus: Iterable[Listed]) -> None:
        """Register for messages, if the driver permits it."""
        self._nvml, self._events = None, None
        with contextlib.suppress(CallFailedError):
            events = nvml.call("nvmlEventSetCreate")
            self._nvml, self._events = nvml, events
            kind = getattr(nvml.module, "nvmlEventTypeXidCriticalError", 8)
            for _, handle in gpus:
                nvml.ask("nvmlDeviceRegisterEvents", handle, kind, events)

    def poll(self, at_ns: int) -> None:
        """Collect new messages."""
        for _ in range(_MOST_AT_ONCE):
            if self._nvml is None:
                return
            data = self._nvml.ask("nvmlEventSetWait_v2", self._events, 0)
            if data is None:  # usually a timeout
                return
            if uuid := self._nvml.ask("nvmlDeviceGetUUID", data.device):
                self._faults[uuid].append(explain_xid(int(data.eventData), at_ns))

    def of_device(self, uuid: str) -> tuple[GpuFault, ...]:
        """Return the faults of a device, the latest last."""
        return tuple(self._faults[uuid]) if uuid in self._faults else ()

    def close(self) -> None:
        """Release the driver; the faults are kept."""
        if self._nvml is not None:
            self._nvml.ask("nvmlEventSetFree", self._events)
        self._nvml, self._events = None, None

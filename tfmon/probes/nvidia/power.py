"""Power, energy, temperature, clocks and faults of NVIDIA devices."""

from __future__ import annotations

import contextlib
import sys
from collections import defaultdict, deque
from collections.abc import Iterable
from functools import partial
from typing import Any

from tfmon.model.gpu_samples import ALARM, INFO, WARNING, ClockReason, GpuClocks, GpuFault, GpuPower
from tfmon.model.readings import Missing, Reading, known, scaled
from tfmon.probes.base import FIRST_SAMPLE
from tfmon.probes.nvidia.nvml import CallFailedError, DeviceCalls, Listed, Nvml, number

LIMIT_EVERY_S, MAX_CLOCKS_EVERY_S, ENERGY_EVERY_S = 30.0, 60.0, 4.9
_MEAN_POWER = 185
"""NVML field POWER_AVERAGE: the mean of the last second, from Ampere on, except GA100."""
_ENERGY_SPAN_NS = 950_000_000
"""The energy counter steps every 10 to 100 ms."""
_SM = 1

POWER_CAP, HW_SLOWDOWN = 0x4, 0x8
_SLOWED = 0.8
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


class PowerMeter:
    """Reads power, energy and temperature of one device."""

    def __init__(self, calls: DeviceCalls) -> None:
        self._calls = calls
        self._energy_j: deque[tuple[int, float]] = deque()

    def read(self) -> GpuPower:
        """Return power, its limit and the energy used since the driver was loaded.

        Units: W as a mean over about the last second, or as the driver reports it without an energy counter; J.
        Reading the energy takes 3 ms of CPU on an H100.
        """
        calls = self._calls
        limit = calls.every(LIMIT_EVERY_S, "limit", lambda: _thousandth(calls, "nvmlDeviceGetEnforcedPowerLimit"))
        power: Reading = calls.first("mean power", self._mean_of_driver)
        if not isinstance(power, Missing):
            return GpuPower(power, limit, calls.every(ENERGY_EVERY_S, "energy", self._joules), "driver, 1 s")
        joules = self._joules()
        if not isinstance(joules, Missing):
            return GpuPower(self._mean_w(joules), limit, joules, "energy counter")
        self._energy_j.clear()
        power = _thousandth(calls, "nvmlDeviceGetPowerUsage")
        return GpuPower(power, limit, joules, "" if isinstance(power, Missing) else "driver")

    def _mean_of_driver(self) -> float:
        (power,) = self._calls.fields(_MEAN_POWER)
        return number(power.valueType, power.value) / 1000

    def _joules(self) -> Reading:
        return _thousandth(self._calls, "nvmlDeviceGetTotalEnergyConsumption")

    def celsius(self) -> Reading:
        """Return the temperature. Source: `nvmlDeviceGetTemperatureV`; `nvmlDeviceGetTemperature`."""
        functions = ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature")
        ways = (partial(self._calls.call, function, 0) for function in functions)
        return scaled(self._calls.first("temperature", *ways), 1.0)

    def _mean_w(self, joules: float) -> Reading:
        at_ns, seen = self._calls.at_ns, self._energy_j
        if seen and joules < seen[-1][1]:  # driver reload
            seen.clear()
        seen.append((at_ns, joules))
        while len(seen) > 2 and at_ns - seen[1][0] >= _ENERGY_SPAN_NS:
            seen.popleft()
        begun_ns, begun_j = seen[0]
        if at_ns - begun_ns < _ENERGY_SPAN_NS:
            return FIRST_SAMPLE
        return (joules - begun_j) * 1e9 / (at_ns - begun_ns)


def _thousandth(calls: DeviceCalls, function: str) -> Reading:
    return calls.number(function, scale=1 / 1000)


class ClockMeter:
    """Reads the clocks of one device."""

    def __init__(self, calls: DeviceCalls) -> None:
        self._calls = calls
        self._slowed_before = False

    def read(self) -> GpuClocks:
        """Return the clock in MHz, the highest one and what lowers it."""
        calls = self._calls
        highest = calls.every(
            MAX_CLOCKS_EVERY_S, "highest clock", lambda: calls.number("nvmlDeviceGetMaxClockInfo", _SM)
        )
        sm_mhz = calls.number("nvmlDeviceGetClockInfo", _SM)
        return GpuClocks(sm_mhz, highest, self._reasons(sm_mhz, highest))

    def _reasons(self, sm_mhz: Reading, max_mhz: Reading) -> tuple[ClockReason, ...] | Missing:
        bits = self._calls.first(
            "clock reasons",
            lambda: self._calls.call("nvmlDeviceGetCurrentClocksEventReasons"),
            lambda: self._calls.call("nvmlDeviceGetCurrentClocksThrottleReasons"),
        )
        if isinstance(bits, Missing):
            return bits
        # A hardware slowdown shows for an instant when the GPU changes its state.
        bits, slowed = int(bits), bool(int(bits) & HW_SLOWDOWN)
        slowed, self._slowed_before = slowed and self._slowed_before, slowed
        if not slowed:
            bits &= ~HW_SLOWDOWN
        now, highest = known(sm_mhz), known(max_mhz)
        return explain(bits, below=now is not None and highest is not None and now < _SLOWED * highest)


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
    """Collects the XID messages of all devices since `open`, on Linux.

    Polls the driver once a tick: a waiting thread could hang.
    """

    def __init__(self) -> None:
        self._nvml: Nvml | None = None
        self._events: Any = None
        self._faults: dict[str, deque[GpuFault]] = defaultdict(lambda: deque(maxlen=KEPT))

    def open(self, nvml: Nvml, gpus: Iterable[Listed]) -> None:
        """Register for messages, if the driver permits it."""
        self._nvml, self._events = None, None
        if sys.platform != "linux":
            return
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

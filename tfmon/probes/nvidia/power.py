"""Power, energy and temperature of an NVIDIA GPU."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from tfmon.model.readings import Missing, Reading, known
from tfmon.model.samples import ClockReason
from tfmon.probes.base import FIRST_SAMPLE
from tfmon.probes.nvidia.nvml import NOT_SUPPORTED, DeviceCalls, NvmlFailure, Paced

ENERGY_COUNTER, DRIVER = "energy counter", "driver"
LIMIT_EVERY_S = 30.0
_ENERGY_SPAN_NS = 950_000_000
"""The energy counter steps every 10 to 100 ms, so that over much less than a second it would mislead."""


class PowerMeter:
    """Reads the power of one device."""

    def __init__(self, calls: DeviceCalls, *, sysfs_celsius: Callable[[], float | None] | None = None) -> None:
        self._calls = calls
        self._sysfs_celsius = sysfs_celsius
        self._seen: deque[tuple[int, int]] = deque()
        self._limit = Paced(LIMIT_EVERY_S, self._read_limit)

    def energy_j(self, at_ns: int) -> Reading:
        """Return what the GPU used since the driver was loaded; ask for it before `power`.

        Source: `nvmlDeviceGetTotalEnergyConsumption`, in mJ.
        """
        millijoules = self._calls.first("energy", lambda: self._calls.call("nvmlDeviceGetTotalEnergyConsumption"))
        if isinstance(millijoules, Missing):
            self._seen.clear()
            return millijoules
        self._note(at_ns, int(millijoules))
        return int(millijoules) / 1000

    def power(self, at_ns: int) -> tuple[Reading, str]:
        """Return the power in W, and where it comes from.

        Units: a mean over the last second or a little more; without an energy counter as the driver gives it.
        Source: growth of the energy counter; `nvmlDeviceGetPowerUsage`.
        """
        if self._seen:
            begun_ns, begun = self._seen[0]
            span_ns = at_ns - begun_ns
            if span_ns < _ENERGY_SPAN_NS:
                return FIRST_SAMPLE, ENERGY_COUNTER
            return (self._seen[-1][1] - begun) * 1e6 / span_ns, ENERGY_COUNTER
        milliwatts = self._calls.number("power", "nvmlDeviceGetPowerUsage")
        return (milliwatts, "") if isinstance(milliwatts, Missing) else (milliwatts / 1000, DRIVER)

    def limit_w(self, at_ns: int) -> Reading:
        """Source: `nvmlDeviceGetEnforcedPowerLimit`, every 30 s."""
        return self._limit.at(at_ns)

    def celsius(self) -> Reading:
        """Source: `nvmlDeviceGetTemperatureV`; `nvmlDeviceGetTemperature`; on Jetson physical_gpus a zone in /sys."""
        answer = self._calls.first(
            "temperature",
            lambda: self._calls.call("nvmlDeviceGetTemperatureV", 0),
            lambda: self._calls.call("nvmlDeviceGetTemperature", 0),
            self._zone,
        )
        return answer if isinstance(answer, Missing) else float(answer)

    def _note(self, at_ns: int, millijoules: int) -> None:
        """Keep the counter over the last second or a little more."""
        seen = self._seen
        if seen and millijoules < seen[-1][1]:  # the driver was loaded anew
            seen.clear()
        seen.append((at_ns, millijoules))
        while len(seen) > 2 and at_ns - seen[1][0] >= _ENERGY_SPAN_NS:
            seen.popleft()

    def _read_limit(self) -> Reading:
        milliwatts = self._calls.number("power limit", "nvmlDeviceGetEnforcedPowerLimit")
        return milliwatts if isinstance(milliwatts, Missing) else milliwatts / 1000

    def _zone(self) -> float | NvmlFailure:
        celsius = self._sysfs_celsius() if self._sysfs_celsius is not None else None
        return NvmlFailure(NOT_SUPPORTED) if celsius is None else celsius


# ---------------- clocks of an NVIDIA GPU, and what holds them down


SM, MEMORY = 1, 2
INFO, WARNING, ALARM = "info", "warning", "alarm"
POWER_CAP, HW_SLOWDOWN = 0x4, 0x8
_SLOWED = 0.8
"""Below this share of the highest clock a power cap is worth a warning."""
MAX_EVERY_S = 60.0

_REASONS = {
    0x1: ("idle", INFO),
    0x2: ("clocks fixed by a user's setting", INFO),
    POWER_CAP: ("at its power limit", INFO),
    HW_SLOWDOWN: ("hardware slowdown, clocks halved or worse: heat or power supply", ALARM),
    0x10: ("held to the slowest GPU of its sync group", INFO),
    0x20: ("hot: the GPU or its memory is at its highest working temperature", WARNING),
    0x40: ("overheating: clocks halved or worse", ALARM),
    0x80: ("the power supply asks it to slow down", ALARM),
    0x100: ("held by the clocks of a display", INFO),
    0x200: ("at a limit of the physical_gpu", INFO),
    0x400: ("at a voltage limit, for reliability", INFO),
}
"""Bits of the driver's clock event reasons. Source: nvml.h, "NVML Clock Event Reasons"."""


class ClockMeter:
    """Reads the clocks of one device."""

    def __init__(self, calls: DeviceCalls) -> None:
        self._calls = calls
        self._max = Paced(MAX_EVERY_S, lambda: (self._read_max(SM), self._read_max(MEMORY)))
        self._slowed_before = False

    def mhz(self, kind: int) -> Reading:
        """Source: `nvmlDeviceGetClockInfo`."""
        return self._calls.number(f"clock {kind}", "nvmlDeviceGetClockInfo", kind)

    def max_mhz(self, at_ns: int) -> tuple[Reading, Reading]:
        """Return the highest clocks of multiprocessors and memory. Source: `nvmlDeviceGetMaxClockInfo`."""
        return self._max.at(at_ns)

    def reasons(self, sm_mhz: Reading, max_mhz: Reading) -> tuple[ClockReason, ...] | Missing:
        """Return what holds the clocks down.

        A hardware slowdown must last for two samples: it shows for an instant when the GPU changes its state.
        Source: `nvmlDeviceGetCurrentClocksEventReasons`, on older drivers `…ThrottleReasons`.
        """
        bits = self._calls.first(
            "clock reasons",
            lambda: self._calls.call("nvmlDeviceGetCurrentClocksEventReasons"),
            lambda: self._calls.call("nvmlDeviceGetCurrentClocksThrottleReasons"),
        )
        if isinstance(bits, Missing):
            return bits
        bits, slowed = int(bits), bool(int(bits) & HW_SLOWDOWN)
        slowed, self._slowed_before = slowed and self._slowed_before, slowed
        if not slowed:
            bits &= ~HW_SLOWDOWN
        return explain(bits, below=_is_below(sm_mhz, max_mhz))

    def _read_max(self, kind: int) -> Reading:
        return self._calls.number(f"highest clock {kind}", "nvmlDeviceGetMaxClockInfo", kind)


def explain(bits: int, *, below: bool) -> tuple[ClockReason, ...]:
    """Put the driver's bits in words; `below` tells that the clock is well below its highest."""
    found: list[ClockReason] = []
    for bit, (text, level) in _REASONS.items():
        if bits & bit:
            found.append(ClockReason(text, WARNING if bit == POWER_CAP and below else level))
    other = bits & ~sum(_REASONS)
    if other:
        found.append(ClockReason(f"for a reason this tfmon does not know ({other:#x})", INFO))
    return tuple(found)


def _is_below(now: Reading, highest: Reading) -> bool:
    value, most = known(now), known(highest)
    return value is not None and most is not None and value < _SLOWED * most

"""Power, energy and temperature of an NVIDIA GPU."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from tfmon.model.readings import Missing, Reading
from tfmon.probes.nvidia_calls import DeviceCalls, Paced
from tfmon.probes.nvml import NOT_SUPPORTED, Refusal
from tfmon.probes.rates import FIRST_SAMPLE

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
        """Source: `nvmlDeviceGetTemperatureV`; `nvmlDeviceGetTemperature`; on Jetson boards a zone in /sys."""
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

    def _zone(self) -> float | Refusal:
        celsius = self._sysfs_celsius() if self._sysfs_celsius is not None else None
        return Refusal(NOT_SUPPORTED) if celsius is None else celsius

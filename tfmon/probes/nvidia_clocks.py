"""Clocks of an NVIDIA GPU, and what holds them down."""

from __future__ import annotations

from tfmon.model.readings import Missing, Reading, known
from tfmon.model.samples import ClockReason
from tfmon.probes.nvidia_calls import DeviceCalls, Paced

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
    0x200: ("at a limit of the board", INFO),
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

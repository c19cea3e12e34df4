"""The PCIe link of an NVIDIA GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tfmon.model.readings import Missing, Reading, known
from tfmon.probes.base import CounterRate
from tfmon.probes.nvidia.nvml import NOT_FOUND, DeviceCalls, NvmlFailure, Paced

COUNTER, PEEK = "counter", "20 ms peek"
PEEK_EVERY_S, LINK_EVERY_S = 5.0, 10.0
_SENT, _RECEIVED = 197, 198
"""NVML fields PCIE_COUNT_TX_BYTES and PCIE_COUNT_RX_BYTES; "sent" is what leaves the GPU."""
_VALUE_FIELDS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
_BUSY_PCT, _BUSY_SAMPLES = 50, 3


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes a second over the link."""

    sent: Reading
    received: Reading
    source: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """What the link runs at, and could."""

    generation: Reading
    generation_max: Reading
    width: Reading
    width_max: Reading


class LinkMeter:
    """Reads the link of one device."""

    def __init__(self, calls: DeviceCalls) -> None:
        self._calls = calls
        self._rates = CounterRate(), CounterRate()
        self._at_ns = 0
        self._peek = Paced(PEEK_EVERY_S, self._read_peek)
        self._link = Paced(LINK_EVERY_S, self._read_link)
        self._busy_samples = 0

    def traffic(self, at_ns: int) -> Traffic:
        """Return the bytes a second since the sample before, or in 20 ms of the last 5 s.

        Source: `nvmlDeviceGetFieldValues` 197 and 198; `nvmlDeviceGetPcieThroughput`, which waits for 20 ms
        a direction.
        """
        self._at_ns = at_ns
        answer = self._calls.first("pcie", self._counters, lambda: self._peek.at(at_ns))
        return Traffic(answer, answer) if isinstance(answer, Missing) else answer

    def link(self, at_ns: int) -> Link:
        """Return generation and width, every 10 s.

        Source: `nvmlDeviceGetCurrPcieLinkGeneration`, `…Width`, and `nvmlDeviceGetMaxPcieLink…`, which is what
        the GPU and its slot can both do.
        """
        return self._link.at(at_ns)

    def warning(self, link: Link, busy_pct: Reading) -> str:
        """Say what is wrong with the link; a low generation is so only under load, for it saves power."""
        busy = known(busy_pct)
        self._busy_samples = self._busy_samples + 1 if busy is not None and busy > _BUSY_PCT else 0
        width, widest = known(link.width), known(link.width_max)
        if width is not None and widest is not None and width < widest:
            return f"the PCIe link has {width:.0f} of {widest:.0f} lanes"
        now, highest = known(link.generation), known(link.generation_max)
        slow = now is not None and highest is not None and now < highest
        if slow and self._busy_samples >= _BUSY_SAMPLES:
            return f"the PCIe link runs at generation {now:.0f} of {highest:.0f} under load"
        return ""

    def _counters(self) -> Traffic | NvmlFailure:
        answer = self._calls.call("nvmlDeviceGetFieldValues", [_SENT, _RECEIVED])
        if isinstance(answer, NvmlFailure):
            return answer
        for value in answer:
            if value.nvmlReturn != 0:
                return NvmlFailure(int(value.nvmlReturn))
        if len(answer) != 2:
            return NvmlFailure(NOT_FOUND)
        sent, received = (_number(value) for value in answer)
        return Traffic(
            self._rates[0].per_s(sent, self._at_ns), self._rates[1].per_s(received, self._at_ns), COUNTER
        )

    def _read_peek(self) -> Traffic | NvmlFailure:
        rates: list[float] = []
        for direction in (0, 1):
            kilobytes = self._calls.call("nvmlDeviceGetPcieThroughput", direction)
            if isinstance(kilobytes, NvmlFailure):
                return kilobytes
            rates.append(kilobytes * 1000.0)
        return Traffic(rates[0], rates[1], PEEK)

    def _read_link(self) -> Link:
        return Link(
            self._calls.number("generation", "nvmlDeviceGetCurrPcieLinkGeneration"),
            self._calls.number("highest generation", "nvmlDeviceGetMaxPcieLinkGeneration"),
            self._calls.number("width", "nvmlDeviceGetCurrPcieLinkWidth"),
            self._calls.number("largest width", "nvmlDeviceGetMaxPcieLinkWidth"),
        )


def _number(value: Any) -> float:  # noqa: ANN401 - pynvml has no types
    return float(getattr(value.value, _VALUE_FIELDS[value.valueType]))

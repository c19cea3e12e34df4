"""How busy an NVIDIA GPU is, and by whom."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass

from tfmon.model.readings import Missing, Reading
from tfmon.probes.nvidia_calls import DeviceCalls, Paced
from tfmon.probes.nvml import NOT_FOUND, NOT_SUPPORTED, Refusal
from tfmon.probes.rates import FIRST_SAMPLE

SAMPLES, DRIVER_WINDOW, SYSFS = "samples", "driver window", "sysfs"
SPLIT = Missing("the driver does not tell it of a GPU that is split up (MIG)")
SHARES_EVERY_S = 1.9
"""Every second tick: the driver renews the shares of the processes no faster."""
_VALUE_FIELDS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


@dataclass(frozen=True, slots=True)
class Busy:
    """How busy a device was."""

    pct: Reading
    max_pct: Reading
    source: str = ""


class BusyMeter:
    """Reads the load of one device.

    Units: percent of time in which at least one kernel ran; 100 can be a single multiprocessor.
    """

    def __init__(self, calls: DeviceCalls, *, sysfs: Callable[[], float | None] | None = None) -> None:
        self._calls = calls
        self._sysfs = sysfs
        self._cursor: int | None = None
        self._shares_cursor: int | None = None
        self._shares: Paced[dict[int, float] | Missing] = Paced(SHARES_EVERY_S, self._read_shares)

    def read(self) -> Busy:
        """Return mean and maximum since the sample before, or the driver's last 1/6 to 1 s.

        Source: `nvmlDeviceGetSamples` of GPU utilisation; `nvmlDeviceGetUtilizationRates().gpu`; on Jetson
        boards `load` in /sys.
        """
        busy = self._calls.first("busy", self._samples, self._window, self._board_load)
        return Busy(busy, busy) if isinstance(busy, Missing) else busy

    def by_pid(self, at_ns: int, listed: Collection[int]) -> dict[int, float] | Missing:
        """Return the share of each process in percent, every other tick; a listed one that used none has 0.

        Source: `nvmlDeviceGetProcessUtilization().smUtil`, the mean of its samples.
        """
        shares = self._shares.at(at_ns)
        return shares if isinstance(shares, Missing) else {**dict.fromkeys(listed, 0.0), **shares}

    def _samples(self) -> Busy | Refusal:
        first, since = self._cursor is None, self._cursor or 0
        # The cursor is the driver's own stamp: which clock it counts on differs between machines.
        answer = self._calls.call("nvmlDeviceGetSamples", 1, since)
        if isinstance(answer, Refusal):
            # With no samples at all, pynvml asks for an array of none and is told that its question is wrong.
            return Refusal(NOT_FOUND) if answer.code == 2 else answer
        kind, samples = answer
        newer = [sample for sample in samples if sample.timeStamp > since]
        self._cursor = max((sample.timeStamp for sample in newer), default=since)
        values = [float(getattr(sample.sampleValue, _VALUE_FIELDS[kind])) for sample in newer]
        values = [value for value in values if 0 <= value <= 100]
        if first or not values:  # the first call gives what happened before we looked
            return Refusal(NOT_FOUND)
        return Busy(sum(values) / len(values), max(values), SAMPLES)

    def _window(self) -> Busy | Refusal:
        answer = self._calls.call("nvmlDeviceGetUtilizationRates")
        if isinstance(answer, Refusal):
            return answer
        return Busy(float(answer.gpu), Missing("the driver tells only the mean of its window"), DRIVER_WINDOW)

    def _board_load(self) -> Busy | Refusal:
        load = self._sysfs() if self._sysfs is not None else None
        if load is None:
            return Refusal(NOT_SUPPORTED)
        return Busy(load, Missing("the system tells only one value"), SYSFS)

    def _read_shares(self) -> dict[int, float] | Missing:
        return self._calls.first("shares", self._process_samples)

    def _process_samples(self) -> dict[int, float] | Missing | Refusal:
        since = self._shares_cursor
        samples = self._calls.call("nvmlDeviceGetProcessUtilization", since or 0)
        if isinstance(samples, Refusal):
            if samples.code != NOT_FOUND:
                return samples
            samples = []  # nobody used the GPU
        values: dict[int, list[float]] = defaultdict(list)
        newest = since or 0
        for sample in samples:
            # The list may hold entries of no process and of long ago.
            if sample.pid and sample.timeStamp > (since or 0) and sample.smUtil <= 100:
                values[sample.pid].append(float(sample.smUtil))
                newest = max(newest, sample.timeStamp)
        self._shares_cursor = newest
        if since is None and values:  # the first call gives what happened before we looked
            return FIRST_SAMPLE
        return {pid: sum(shares) / len(shares) for pid, shares in values.items()}

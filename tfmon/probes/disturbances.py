"""What may disturb a race from outside: quotas, the hypervisor's share, swap, pressure."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from pathlib import Path

from tfmon.model.readings import NOT_READ, Missing, Reading
from tfmon.probes.base import CounterRate, Readings
from tfmon.probes.load import read_swap
from tfmon.probes.machine import NO_GROUP, cpu_folders, read_throttling, read_usable_cores

CORES_EVERY_NS = 30_000_000_000
_NO_PRESSURE = Missing("this system does not account for pressure")
_NO_SWAP = Missing("this system does not report swapping")


class Disturbances:
    """Reads what disturbs a race, again and again.

    Thread: the ticker's only.
    """

    def __init__(self, root: Path = Path("/"), *, platform: str = sys.platform) -> None:
        self._root = root
        self._platform = platform
        self._swapped_in, self._swapped_out = CounterRate(), CounterRate()
        self._throttling = _Throttling(root)
        self._cores: Reading = NOT_READ
        self._cores_at_ns: int | None = None

    def read(self, at_ns: int, lanes: Collection[int]) -> Readings:
        """Return the readings of `HostSample` about disturbances.

        Args:
            lanes: The pids whose control groups count; this process's if there are none.
        Source: `read_swap`, /proc/pressure ("some", `avg10`), `read_throttling`; usable cores every 30 s.
        """
        swapped = read_swap(self._root / "proc" if self._platform == "linux" else None)
        throttled_pct, stopped_ms_per_s = self._throttling.read(at_ns, lanes)
        return {
            "usable_cores": self._usable_cores(at_ns),
            "swap_in_bytes_per_s": self._swapped_in.per_s(swapped[0], at_ns) if swapped else _NO_SWAP,
            "swap_out_bytes_per_s": self._swapped_out.per_s(swapped[1], at_ns) if swapped else _NO_SWAP,
            "cpu_pressure_pct": self._pressure("cpu"),
            "memory_pressure_pct": self._pressure("memory"),
            "throttled_pct": throttled_pct,
            "throttled_ms_per_s": stopped_ms_per_s,
        }

    def _usable_cores(self, at_ns: int) -> Reading:
        if self._cores_at_ns is None or at_ns - self._cores_at_ns >= CORES_EVERY_NS:
            self._cores = float(read_usable_cores(os.cpu_count() or 1, self._root))
            self._cores_at_ns = at_ns
        return self._cores

    def _pressure(self, kind: str) -> Reading:
        """Units: percent of the last 10 s, as the kernel averages it."""
        try:
            with open(f"{self._root}/proc/pressure/{kind}", encoding="ascii") as file:  # noqa: PTH123 - quicker
                words = file.readline().split()
            return float(words[1].removeprefix("avg10="))
        except (OSError, IndexError, ValueError):  # no such file, or accounting is switched off
            return _NO_PRESSURE


class _Throttling:
    """For how much of the time the control groups of the lanes had used up their quota."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lanes: frozenset[int] | None = None
        self._folders: tuple[Path, ...] = ()
        self._rates: dict[Path, tuple[CounterRate, CounterRate, CounterRate]] = {}

    def read(self, at_ns: int, lanes: Collection[int]) -> tuple[Reading, Reading]:
        """Return the throttled share of the periods in percent and the ms per second, of the group hit hardest."""
        if self._lanes != frozenset(lanes):
            self._lanes = frozenset(lanes)
            found = [folder for pid in lanes or ("self",) for folder in cpu_folders(self._root, pid)]
            self._folders = tuple(read_throttling(tuple(dict.fromkeys(found))))
        groups: list[tuple[float, float]] = []
        missing: Missing = NO_GROUP
        for folder, now in read_throttling(self._folders).items():
            counters = self._rates.setdefault(folder, (CounterRate(), CounterRate(), CounterRate()))
            counts = (now.periods, now.throttled, now.stopped_s)
            rates = [counter.per_s(count, at_ns) for counter, count in zip(counters, counts, strict=True)]
            numbers = [rate for rate in rates if not isinstance(rate, Missing)]
            if len(numbers) < len(rates):
                missing = next(rate for rate in rates if isinstance(rate, Missing))
            else:  # without a quota no period passes, and nothing is throttled
                groups.append((100 * numbers[1] / numbers[0] if numbers[0] else 0.0, 1_000 * numbers[2]))
        return max(groups) if groups else (missing, missing)

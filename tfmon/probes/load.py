"""What the machine has used, and what disturbs a race there; from /proc on Linux, elsewhere from psutil if it is there."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfmon.model import limits
from tfmon.model.limits import NO_GROUP, group_folders, read_throttling
from tfmon.model.readings import NOT_READ, Missing, Reading
from tfmon.probes.base import CounterRate, Readings
from tfmon.probes.machine import read_usable_cores

NO_PSUTIL = "psutil is not installed beside this Python"
_BUSY = ("user", "nice", "system", "irq", "softirq")
_TIMES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
"""The first columns of /proc/stat. Source: proc_stat(5)."""


class NoReadingError(OSError):
    """The system gives no such reading, or not without psutil; the text says which."""


@dataclass(frozen=True, slots=True)
class Load:
    """What the machine has used."""

    busy_s: float
    """CPU time of all cores since the machine was started, without idle, disk wait and stolen time."""
    used_bytes: int
    total_bytes: int
    stolen_s: float | None = None
    """CPU time that the hypervisor gave to others; None if unknown."""


def need_psutil() -> Any:  # noqa: ANN401 - it has no types
    """Return the module psutil, which is not needed on Linux, and which a host may lack.

    Raises:
        NoReadingError: it is not there.
    """
    try:
        return importlib.import_module("psutil")
    except ImportError:
        raise NoReadingError(NO_PSUTIL) from None


def read_load(proc: Path | None = None) -> Load:
    """Read the machine's CPU time and memory.

    Args:
        proc: The folder to read; by default /proc on Linux, and psutil elsewhere.

    Raises:
        OSError: the system gives none; NoReadingError without psutil.
    Source: /proc/stat; elsewhere psutil `cpu_times()`; memory as in `read_memory`.
    """
    total, available = read_memory(proc)
    if proc is None and sys.platform != "linux":
        times = need_psutil().cpu_times()
        seconds = {name: getattr(times, name) for name in _TIMES if hasattr(times, name)}
    else:
        words = _read(proc, "stat").split("\n", 1)[0].split()
        if words[:1] != ["cpu"]:
            raise NoReadingError("/proc/stat has no line for all cores")
        tick_s = 1.0 / os.sysconf("SC_CLK_TCK")
        seconds = {name: int(ticks) * tick_s for name, ticks in zip(_TIMES, words[1:], strict=False)}
    busy_s = sum(seconds.get(name, 0.0) for name in _BUSY)
    return Load(busy_s, total - available, total, seconds.get("steal"))


def read_memory(proc: Path | None = None) -> tuple[int, int]:
    """Return the machine's memory, and how much of it a program could get now, in bytes.

    Raises:
        OSError: the system does not say; NoReadingError without psutil.
    Source: `limits.read_memory`; elsewhere psutil `virtual_memory()`.
    """
    if proc is None and sys.platform != "linux":
        told = need_psutil().virtual_memory()
        return int(told.total), int(told.available)
    memory = limits.read_memory((proc or Path("/proc")) / "meminfo")
    if memory is None:
        raise NoReadingError("/proc/meminfo does not say how much memory is available")
    return memory


def read_swap(proc: Path | None = None) -> tuple[int, int] | None:
    """Return the bytes read from and written to swap since the machine was started; None if unknown.

    Args:
        proc: As for `read_load`.
    Source: /proc/vmstat, `pswpin` and `pswpout`; elsewhere psutil `swap_memory()`.
    """
    try:
        if proc is None:
            swap = need_psutil().swap_memory()
            return int(swap.sin), int(swap.sout)
        with open(proc / "vmstat", "rb") as file:  # noqa: PTH123 - quicker
            text = file.read()
        page = os.sysconf("SC_PAGE_SIZE")
        pages_in = text.partition(b"\npswpin ")[2].partition(b"\n")[0]
        pages_out = text.partition(b"\npswpout ")[2].partition(b"\n")[0]
        return int(pages_in) * page, int(pages_out) * page
    except (OSError, RuntimeError, ValueError):
        return None


def _read(proc: Path | None, name: str) -> str:
    with open(f"{proc or '/proc'}/{name}", encoding="ascii") as file:  # noqa: PTH123 - quicker
        return file.read()


CORES_EVERY_NS = 30_000_000_000
_NO_PRESSURE = Missing("this system does not account for pressure")
_NO_SWAP = Missing("this system does not report swapping")


class Disturbances:
    """Reads what disturbs a race from outside: quotas, swap, pressure.

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
            found = [folder for pid in lanes or ("self",) for folder in group_folders("cpu", self._root, pid)]
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

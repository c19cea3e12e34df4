"""What the machine has used: CPU time, memory, swap; from /proc on Linux, elsewhere from psutil if it is there."""

from __future__ import annotations

import importlib
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    Source: /proc/meminfo, `MemTotal` and `MemAvailable`; elsewhere psutil `virtual_memory()`.
    """
    if proc is None and sys.platform != "linux":
        memory = need_psutil().virtual_memory()
        return int(memory.total), int(memory.available)
    text = _read(proc, "meminfo")
    found = dict(re.findall(r"^(MemTotal|MemAvailable):\s+(\d+) kB$", text, re.MULTILINE))
    if len(found) < 2:
        raise NoReadingError("/proc/meminfo does not say how much memory is available")
    return 1024 * int(found["MemTotal"]), 1024 * int(found["MemAvailable"])


def memory_bytes() -> int:
    """Return the memory of the machine. Source: sysconf, which every system has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


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

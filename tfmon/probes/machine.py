"""The machine's facts, its use, and disturbances of a race."""

from __future__ import annotations

import importlib
import os
import platform
import re
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from tfmon.model.fast_dataclass import dataclass
from tfmon.model.race import Machine
from tfmon.model.readings import Missing, Reading
from tfmon.probes.base import FIRST_SAMPLE, CounterRate
from tfmon.system import limits
from tfmon.system.limits import NO_GROUP, group_folders, quota_cores, quota_of, read_text, read_throttling
from tfmon.system.programs import run_program

_FIRST_NAMESPACE = 0xEFFFFFFC
"""Inode of the first pid namespace. Source: linux/proc_ns.h, PROC_PID_INIT_INO."""
_ARM_CORES = {
    ("0x41", "0xd08"): "Cortex-A72",
    ("0x41", "0xd0b"): "Cortex-A76",
    ("0x41", "0xd0c"): "Neoverse-N1",
    ("0x41", "0xd40"): "Neoverse-V1",
    ("0x41", "0xd42"): "Cortex-A78AE",
    ("0x41", "0xd49"): "Neoverse-N2",
    ("0x41", "0xd4f"): "Neoverse-V2",
    ("0xc0", "0xac3"): "Ampere-1",
}


def read_machine(root: Path = Path("/")) -> Machine:
    """Return the facts of this machine without a GPU driver."""
    cores = os.cpu_count() or 1
    uname = os.uname()
    system = f"{uname.sysname} {uname.release} {uname.machine}"
    return Machine(
        hostname=uname.nodename,
        system=f"macOS {platform.mac_ver()[0]}" if sys.platform == "darwin" else system,
        cpu_name=read_cpu_name(root) or uname.machine,
        cores=cores,
        usable_cores=read_usable_cores(cores, root),
        memory_bytes=memory_bytes(),
        boot=read_boot(root),
        quota_cores=quota_cores(root),
        nice=os.getpriority(os.PRIO_PROCESS, 0),
    )


def memory_bytes() -> int:
    """Return the machine's memory. Source: sysconf."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def read_boot(root: Path = Path("/")) -> str:
    """Return the name of this boot, the same in all containers."""
    if sys.platform == "darwin":
        return _ask_sysctl("kern.bootsessionuuid").lower()
    return read_text(root / "proc/sys/kernel/random/boot_id").strip()


def read_usable_cores(cores: int, root: Path = Path("/"), groups: Sequence[Path] | None = None) -> float:
    """Return the usable cores: the least of cores, affinity and quotas. `groups` are known control groups."""
    limits: list[float] = [cores]
    if sys.platform == "linux":
        limits.append(len(os.sched_getaffinity(0)))
        quota = quota_cores(root) if groups is None else quota_of(groups)
        if quota is not None:
            limits.append(quota)
    return min(limits)


def read_cpu_name(root: Path = Path("/")) -> str:
    """Return the model of the CPU, or empty."""
    if sys.platform == "darwin":
        return _ask_sysctl("machdep.cpu.brand_string")
    text = read_text(root / "proc/cpuinfo")
    fields: dict[str, str] = {}
    for line in text.split("\n\n", 1)[0].splitlines():
        key, _, value = line.partition(":")
        fields[key.strip()] = " ".join(value.split())
    if "model name" in fields:
        return fields["model name"]
    if "CPU part" in fields:
        maker, part = fields.get("CPU implementer", ""), fields["CPU part"]
        return _ARM_CORES.get((maker, part), f"ARM (maker {maker}, part {part})")
    return fields.get("cpu", "") or fields.get("Processor", "")


def _ask_sysctl(name: str, program: str = "/usr/sbin/sysctl") -> str:
    try:
        return run_program([program, "-n", name], 2.0).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def in_wsl(root: Path = Path("/")) -> bool:
    """Return whether this Linux runs in Windows. Source: /proc/version, /dev/dxg."""
    return "microsoft" in read_text(root / "proc/version").lower() or (root / "dev/dxg").exists()


def in_pid_namespace(root: Path = Path("/")) -> bool:
    """Return whether processes have other numbers here than on the host."""
    try:
        return (root / "proc/self/ns/pid").stat().st_ino != _FIRST_NAMESPACE
    except OSError:
        return False


NO_PSUTIL = "psutil is not installed beside this Python"
_BUSY = ("user", "nice", "system", "irq", "softirq")
_TIMES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
"""Source: proc_stat(5)."""


class NoReadingError(OSError):
    """The system gives no such reading, or not without psutil."""


@dataclass(frozen=True, slots=True)
class Load:
    """The resources that the machine has used."""

    busy_s: float
    """CPU time of all cores, without idle, disk wait and stolen time."""
    used_bytes: int
    total_bytes: int
    stolen_s: float | None = None
    """CPU time that the hypervisor gave to other machines."""


def need_psutil() -> Any:
    """Return the module psutil, or raise NoReadingError."""
    try:
        return importlib.import_module("psutil")
    except ImportError:
        raise NoReadingError(NO_PSUTIL) from None


def read_load(proc: Path | None = None) -> Load:
    """Read CPU time and memory; raises OSError or NoReadingError."""
    total, available = read_memory(proc)
    if proc is None and sys.platform != "linux":
        times = need_psutil().cpu_times()
        seconds = {name: getattr(times, name) for name in _TIMES if hasattr(times, name)}
    else:
        fields = read_text((proc or Path("/proc")) / "stat").partition("\n")[0].split()
        if fields[:1] != ["cpu"]:
            raise NoReadingError("/proc/stat has no line for all cores")
        tick_s = 1.0 / os.sysconf("SC_CLK_TCK")
        seconds = {name: int(ticks) * tick_s for name, ticks in zip(_TIMES, fields[1:], strict=False)}
    busy_s = sum(seconds.get(name, 0.0) for name in _BUSY)
    return Load(busy_s, total - available, total, seconds.get("steal"))


def read_memory(proc: Path | None = None) -> tuple[int, int]:
    """Return total and available memory in bytes; raises OSError or NoReadingError."""
    if proc is None and sys.platform != "linux":
        system = need_psutil().virtual_memory()
        return int(system.total), int(system.available)
    memory = limits.read_memory((proc or Path("/proc")) / "meminfo")
    if memory is None:
        raise NoReadingError("/proc/meminfo does not say how much memory is available")
    return memory


def read_swap(proc: Path | None = None) -> tuple[int, int] | None:
    """Return the bytes swapped in and out, or `None`."""
    try:
        if proc is None:
            swap = need_psutil().swap_memory()
            return int(swap.sin), int(swap.sout)
        fields, page = dict(_SWAPPED.findall(read_text(proc / "vmstat"))), os.sysconf("SC_PAGE_SIZE")
        return int(fields["pswpin"]) * page, int(fields["pswpout"]) * page
    except (OSError, RuntimeError, KeyError):
        return None


_SWAPPED = re.compile(r"^(pswpin|pswpout) (\d+)$", re.MULTILINE)
_NO_SWAP = Missing("this system does not report swapping")


class Disturbances:
    """Reads quotas, swap and pressure. Thread: the ticker's."""

    def __init__(self, root: Path = Path("/"), *, platform: str = sys.platform) -> None:
        self._root = root
        self._platform = platform
        self._swapped_in, self._swapped_out = CounterRate(), CounterRate()
        self._lanes: frozenset[int] | None = None
        self._groups: tuple[Path, ...] = ()
        self._folders: tuple[Path, ...] = ()
        self._counts: dict[Path, tuple[int, int]] = {}

    def read(self, at_ns: int, lanes: Collection[int]) -> dict[str, Any]:
        """Return disturbances; `lanes` are the pids whose control groups count."""
        if self._lanes != frozenset(lanes):
            self._find_groups(frozenset(lanes))
        swapped = read_swap(self._root / "proc" if self._platform == "linux" else None)
        return {
            "usable_cores": float(read_usable_cores(os.cpu_count() or 1, self._root, self._groups)),
            "swap_in_bytes_per_s": self._swapped_in.per_s(swapped[0], at_ns) if swapped else _NO_SWAP,
            "swap_out_bytes_per_s": self._swapped_out.per_s(swapped[1], at_ns) if swapped else _NO_SWAP,
            "cpu_pressure_pct": self._pressure("cpu"),
            "memory_pressure_pct": self._pressure("memory"),
            "throttled_pct": self._throttled(),
        }

    def _pressure(self, kind: str) -> Reading:
        try:
            return float(read_text(self._root / "proc/pressure" / kind).split()[1].removeprefix("avg10="))
        except (IndexError, ValueError):
            return Missing("this system does not account for pressure")

    def _find_groups(self, lanes: frozenset[int]) -> None:
        """Find the control groups with other lanes: the table of mounts is long."""
        self._lanes, self._groups = lanes, group_folders("cpu", self._root)
        result = [folder for pid in lanes or ("self",) for folder in group_folders("cpu", self._root, pid)]
        self._folders = tuple(read_throttling(tuple(dict.fromkeys(result))))

    def _throttled(self) -> Reading:
        """Return the share of throttled periods in the worst group."""
        before, self._counts = self._counts, read_throttling(self._folders)
        shares: list[float] = []
        for folder, (periods, throttled) in self._counts.items():
            if folder in before:
                passed, full = periods - before[folder][0], throttled - before[folder][1]
                shares.append(100 * full / passed if passed > 0 else 0.0)  # without a quota no period passes
        if shares:
            return max(0.0, *shares)
        return FIRST_SAMPLE if self._counts else NO_GROUP

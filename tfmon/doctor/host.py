"""The system around the interpreter: platform, processors, memory and what else runs."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tfmon.doctor.facts import Host, Platform
from tfmon.probes.cgroups import cpu_folders, quota_cores, read_throttling
from tfmon.probes.host import Load, read_load
from tfmon.probes.surroundings import in_wsl

WATCH_S = 0.3
"""The load of others is measured over at least so long."""
_GROUPS = {"kubepods": "kubernetes", "libpod": "podman", "docker": "docker", "lxc": "container"}


def read_platform(
    root: Path = Path("/"), environ: Mapping[str, str] | None = None, *, system: str = "", machine: str = ""
) -> Platform:
    """Return what kind of system this is.

    Source: uname; /etc/os-release; /.dockerenv, /run/.containerenv, /proc/1/cgroup; /proc/version.
    """
    environ = os.environ if environ is None else environ
    return Platform(
        system=system or platform.system(),
        machine=machine or platform.machine(),
        distribution=_distribution(root),
        container=_container(root, environ),
        wsl=_wsl(root),
    )


def _distribution(root: Path) -> str:
    match = re.search(r"^ID=[\"']?([\w.-]+)", _text(root / "etc/os-release"), re.MULTILINE)
    return match[1] if match else ""


def _container(root: Path, environ: Mapping[str, str]) -> str:
    if "KUBERNETES_SERVICE_HOST" in environ:
        return "kubernetes"
    if (root / "run/.containerenv").exists():
        return "podman"
    if (root / ".dockerenv").exists():
        return "docker"
    groups = _text(root / "proc/1/cgroup")
    for word, name in _GROUPS.items():
        if word in groups:
            return name
    return "container" if "container" in environ else ""


def _wsl(root: Path) -> int:
    """Return the version of the Windows Subsystem for Linux, or 0; version 1 has a kernel of Windows' own."""
    if not in_wsl(root):
        return 0
    version = _text(root / "proc/version")
    return 2 if "microsoft-standard" in version or "WSL2" in version or (root / "dev/dxg").exists() else 1


class LoadWatch:
    """Measures what other programs use from its making to `finish`.

    Source: `read_load`; our own part is taken off, with children that have ended.
    """

    def __init__(self, load: Callable[[], Load] = read_load) -> None:
        self._load = load
        self._begun_s = time.monotonic()
        self._before, self._own_s = load(), _own_cpu_s()

    def finish(self) -> tuple[float, float | None]:
        """Return the cores that others kept busy, and the share of time stolen; None where it is not told."""
        time.sleep(max(0.0, self._begun_s + WATCH_S - time.monotonic()))
        after, own_s = self._load(), _own_cpu_s() - self._own_s
        elapsed_s = time.monotonic() - self._begun_s
        others = max(0.0, after.busy_s - self._before.busy_s - own_s) / elapsed_s
        if after.stolen_s is None or self._before.stolen_s is None:
            return others, None
        return others, (after.stolen_s - self._before.stolen_s) / elapsed_s / (os.cpu_count() or 1)


def _own_cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def read_host(root: Path = Path("/"), *, others: tuple[float | None, float | None] = (None, None)) -> Host:
    """Return what is known of processors and memory; `others` is what a `LoadWatch` gave.

    Source: /proc/cpuinfo, /proc/meminfo, /sys/devices/system/cpu, /sys/class/power_supply; control groups as in
    `quota_cores`; elsewhere psutil.
    """
    cores = os.cpu_count() or 1
    total, available, swap = _memory(root)
    return Host(
        cores=cores,
        affinity=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores,
        quota_cores=quota_cores(root),
        throttled_share=_throttled_share(root),
        cpu_flags=_flags(root),
        governors=_governors(root),
        turbo=_turbo(root),
        total_bytes=total,
        available_bytes=available,
        swap_used_bytes=swap,
        others_cores=others[0],
        steal_share=others[1],
        on_battery=_on_battery(root),
    )


def _memory(root: Path) -> tuple[int, int, int]:
    """Return total, available and used swap in bytes, within the limit of the container."""
    lines = re.findall(r"^(\w+):\s+(\d+) kB", _text(root / "proc/meminfo"), re.MULTILINE)
    fields = {name: 1024 * int(number) for name, number in lines}
    if "MemAvailable" not in fields:
        load = read_load()
        return load.total_bytes, load.total_bytes - load.used_bytes, 0
    total, available = fields["MemTotal"], fields["MemAvailable"]
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        most = _text(root / "sys/fs/cgroup" / limit).strip()
        if most.isdigit() and int(most) < total:
            now = _text(root / "sys/fs/cgroup" / used).strip()
            total, available = int(most), min(available, int(most) - int(now) if now.isdigit() else available)
    return total, max(0, available), fields.get("SwapTotal", 0) - fields.get("SwapFree", 0)


def _throttled_share(root: Path) -> float | None:
    counts = read_throttling(cpu_folders(root)).values()
    return max((one.throttled / one.periods for one in counts if one.periods), default=None)


def _flags(root: Path) -> frozenset[str] | None:
    match = re.search(r"^(?:flags|Features)\s*:(.*)$", _text(root / "proc/cpuinfo"), re.MULTILINE)
    return frozenset(match[1].split()) if match else None


def _governors(root: Path) -> tuple[str, ...]:
    files = (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    return tuple(sorted({_text(file).strip() for file in files} - {""}))


def _turbo(root: Path) -> bool | None:
    folder = root / "sys/devices/system/cpu"
    off = _text(folder / "intel_pstate/no_turbo").strip()
    boost = _text(folder / "cpufreq/boost").strip()
    return off == "0" if off else boost == "1" if boost else None


def _on_battery(root: Path) -> bool | None:
    supplies = list((root / "sys/class/power_supply").glob("*"))
    mains = [_text(one / "online").strip() for one in supplies if _text(one / "type").strip() == "Mains"]
    return all(online == "0" for online in mains) if mains else None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""

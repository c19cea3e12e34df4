"""The system around a training, and the load of other programs."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tfmon.model.readings import HostSample
from tfmon.probes.machine import in_wsl, read_machine, read_memory
from tfmon.system.limits import limited_memory, read_text

_GROUPS = {"kubepods": "kubernetes", "libpod": "podman", "docker": "docker", "lxc": "container"}


@dataclass(frozen=True, slots=True)
class Platform:
    """The system of the interpreter."""

    system: str = "Linux"
    machine: str = "x86_64"
    distribution: str = ""
    container: str = ""
    wsl: int = 0


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Processors, memory and load."""

    cores: int = 1
    usable_cores: float = 1
    quota_cores: float | None = None
    governors: tuple[str, ...] = ()
    total_bytes: int = 0
    available_bytes: int = 0
    samples: tuple[HostSample, ...] = ()
    on_battery: bool | None = None


def read_platform(root: Path, environ: Mapping[str, str]) -> Platform:
    """Return the kind of system."""
    match = re.search(r"^ID=[\"']?([\w.-]+)", read_text(root / "etc/os-release"), re.MULTILINE)
    return Platform(
        system=platform.system(),
        machine=platform.machine(),
        distribution=match[1] if match else "",
        container=_container(root, environ),
        wsl=_wsl(root),
    )


def _container(root: Path, environ: Mapping[str, str]) -> str:
    if "KUBERNETES_SERVICE_HOST" in environ:
        return "kubernetes"
    if (root / "run/.containerenv").exists():
        return "podman"
    if (root / ".dockerenv").exists():
        return "docker"
    groups = read_text(root / "proc/1/cgroup")
    for word, name in _GROUPS.items():
        if word in groups:
            return name
    return "container" if "container" in environ else ""


def _wsl(root: Path) -> int:
    if not in_wsl(root):
        return 0
    version = read_text(root / "proc/version")
    return 2 if "microsoft-standard" in version or "WSL2" in version or (root / "dev/dxg").exists() else 1


def read_host(root: Path, samples: tuple[HostSample, ...]) -> HostFacts:
    """Return the facts of processors and memory."""
    machine = read_machine(root)
    total, available = _memory(root)
    files = (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    supplies = list((root / "sys/class/power_supply").glob("*"))
    mains = [
        read_text(supply / "online").strip()
        for supply in supplies
        if read_text(supply / "type").strip() == "Mains"
    ]
    return HostFacts(
        cores=machine.cores,
        usable_cores=machine.usable_cores,
        quota_cores=machine.quota_cores,
        governors=tuple(sorted({read_text(file).strip() for file in files} - {""})),
        total_bytes=total,
        available_bytes=available,
        samples=samples,
        on_battery=all(online == "0" for online in mains) if mains else None,
    )


def _memory(root: Path) -> tuple[int, int]:
    try:
        total, available = read_memory(root / "proc" if (root / "proc/meminfo").exists() else None)
    except OSError:
        return 0, 0
    return limited_memory(total, available, root)

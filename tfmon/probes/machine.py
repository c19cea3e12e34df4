"""What the machine is, and how many of its cores this process may use."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

from tfmon.model.limits import quota_cores, read_text
from tfmon.model.race import Machine

_FIRST_NAMESPACE = 0xEFFFFFFC
"""Inode of the pid namespace that a Linux kernel starts with. Source: linux/proc_ns.h, PROC_PID_INIT_INO."""
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
    """Return the facts of this machine without a GPU driver; takes a few milliseconds.

    Source: uname, sysconf, the CPU's name as in `read_cpu_name`, usable cores as in `read_usable_cores`, the quota
    as in `quota_cores`; /proc/sys/kernel/random/boot_id, on macOS `sysctl kern.bootsessionuuid`.
    """
    cores = os.cpu_count() or 1
    uname = os.uname()
    system = f"macOS {platform.mac_ver()[0]}" if sys.platform == "darwin" else uname.sysname
    return Machine(
        hostname=uname.nodename,
        system=f"{system} {uname.release} {uname.machine}" if sys.platform != "darwin" else system,
        cpu_name=read_cpu_name(root) or uname.machine,
        cores=cores,
        usable_cores=read_usable_cores(cores, root),
        memory_bytes=memory_bytes(),
        boot=read_boot(root),
        quota_cores=quota_cores(root),
        nice=os.getpriority(os.PRIO_PROCESS, 0),
    )


def memory_bytes() -> int:
    """Return the memory of the machine. Source: sysconf, which every system has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def read_boot(root: Path = Path("/")) -> str:
    """Return the kernel's name of this boot, the same in all containers; "" if unknown."""
    if sys.platform == "darwin":
        return _ask_sysctl("kern.bootsessionuuid").lower()
    return read_text(root / "proc/sys/kernel/random/boot_id").strip()


def read_usable_cores(cores: int, root: Path = Path("/")) -> float:
    """Return how many cores a child of this process may keep busy.

    Source: the smallest of the machine's cores, this process's affinity and the quotas of its control groups.
    """
    limits: list[float] = [cores]
    if sys.platform == "linux":
        limits.append(len(os.sched_getaffinity(0)))
        quota = quota_cores(root)
        if quota is not None:
            limits.append(quota)
    return min(limits)


def read_cpu_name(root: Path = Path("/")) -> str:
    """Return the model of the CPU, or "" if unknown.

    Source: /proc/cpuinfo "model name", on ARM "CPU implementer" and "CPU part"; on macOS
    `sysctl machdep.cpu.brand_string`.
    """
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
    command = [program, "-n", name]
    try:
        answer = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=2, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip()


def in_wsl(root: Path = Path("/")) -> bool:
    """Return whether this is a Linux inside of Windows (WSL). Source: /proc/version, /dev/dxg."""
    return "microsoft" in read_text(root / "proc/version").lower() or (root / "dev/dxg").exists()


def in_pid_namespace(root: Path = Path("/")) -> bool:
    """Return whether processes have other numbers here than on the host, as in a container."""
    try:
        return (root / "proc/self/ns/pid").stat().st_ino != _FIRST_NAMESPACE
    except OSError:
        return False

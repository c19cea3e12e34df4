"""What the machine is: facts that do not change while tfmon runs."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import psutil

from tfmon.model.session import Machine
from tfmon.probes.cgroups import quota_cores

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
    """Return what is known of this machine without asking a GPU driver; takes a few milliseconds.

    Source: uname, psutil, the CPU's name as in `read_cpu_name`, usable cores as in `read_usable_cores`.
    """
    cores = psutil.cpu_count(logical=True) or 1
    uname = os.uname()
    system = f"macOS {platform.mac_ver()[0]}" if sys.platform == "darwin" else uname.sysname
    return Machine(
        hostname=uname.nodename,
        system=f"{system} {uname.release} {uname.machine}" if sys.platform != "darwin" else system,
        cpu_name=read_cpu_name(root) or uname.machine,
        cores=cores,
        usable_cores=read_usable_cores(cores, root),
        memory_bytes=int(psutil.virtual_memory().total),
    )


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
    """Return the model of the CPU, or "" where the system does not tell.

    Source: /proc/cpuinfo "model name", on ARM "CPU implementer" and "CPU part"; on macOS
    `sysctl machdep.cpu.brand_string`.
    """
    if sys.platform == "darwin":
        return _ask_sysctl()
    try:
        text = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
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


def _ask_sysctl(program: str = "/usr/sbin/sysctl") -> str:
    try:
        answer = subprocess.run(
            [program, "-n", "machdep.cpu.brand_string"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=2,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip()

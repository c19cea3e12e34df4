"""What the machine is, and what of it this process may use: CPU, control groups (versions 1, 2), containers."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tfmon.model.race import Machine
from tfmon.model.readings import Missing
from tfmon.probes.load import memory_bytes

NO_GROUP = Missing("no control group that limits CPU is visible here")
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


@dataclass(frozen=True, slots=True)
class Throttling:
    """What the quota of one control group has cost since the group was made."""

    periods: int
    """Periods in which the group had a quota and something to run."""
    throttled: int
    """Those of them in which it used up its quota."""
    stopped_s: float
    """Time for which the group was stopped, summed over its cores."""


def quota_cores(root: Path = Path("/"), pid: int | str = "self") -> float | None:
    """Return how many cores the process may keep busy on average, or None without a limit.

    The tightest limit of its group and of every group above it counts.
    Source: `cpu.max` (v2), `cpu.cfs_quota_us` and `cpu.cfs_period_us` (v1), found through /proc/PID/cgroup
    and /proc/PID/mountinfo.
    """
    limits = [limit for folder in cpu_folders(root, pid) if (limit := _limit(folder)) is not None]
    return min(limits, default=None)


def cpu_folders(root: Path = Path("/"), pid: int | str = "self") -> tuple[Path, ...]:
    """Return the folders of the process's group and of the groups above it that limit or count CPU time.

    Source: /proc/PID/cgroup and /proc/PID/mountinfo.
    """
    return tuple(dict.fromkeys(_cpu_folders(root, pid)))


def read_throttling(folders: Sequence[Path]) -> dict[Path, Throttling]:
    """Return the time that each group's quota has cost; groups without such counts are omitted.

    Source: `cpu.stat`: nr_periods, nr_throttled, and throttled_usec (v2) or throttled_time in ns (v1).
    """
    read: dict[Path, Throttling] = {}
    for folder in folders:
        fields = dict(line.split(" ", 1) for line in read_text(folder / "cpu.stat").splitlines() if " " in line)
        try:
            usec = fields.get("throttled_usec")
            stopped_s = int(fields["throttled_time"]) / 1e9 if usec is None else int(usec) / 1e6
            read[folder] = Throttling(int(fields["nr_periods"]), int(fields["nr_throttled"]), stopped_s)
        except (KeyError, ValueError):
            continue
    return read


def _limit(folder: Path) -> float | None:
    """Return the limit that one group sets, in cores."""
    words = read_text(folder / "cpu.max").split()
    if not words:
        words = [read_text(folder / "cpu.cfs_quota_us").strip(), read_text(folder / "cpu.cfs_period_us").strip()]
    try:
        quota, period = int(words[0]), int(words[1])
    except (ValueError, IndexError):  # "max", or no such file
        return None
    return quota / period if quota > 0 and period > 0 else None


def _cpu_folders(root: Path, pid: int | str) -> Iterator[Path]:
    """Yield the folder of the process's group and of each group above it, in every hierarchy that limits CPU."""
    paths = _group_paths(root, pid)
    for line in read_text(root / "proc" / str(pid) / "mountinfo").splitlines():
        mount, _, source = line.partition(" - ")
        fields, kind = mount.split(), source.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2":
            path = paths.get("")
        elif kind[0] == "cgroup" and "cpu" in kind[2].split(","):
            path = paths.get("cpu")
        else:
            continue
        if path is not None:
            top = root / _unescaped(fields[4]).lstrip("/")
            parts = _below(path, _unescaped(fields[3]))
            yield from (top.joinpath(*parts[:length]) for length in range(len(parts), -1, -1))


def _group_paths(root: Path, pid: int | str) -> dict[str, str]:
    """Return the group's path by controller; version 2 has the controller ""."""
    paths: dict[str, str] = {}
    for line in read_text(root / "proc" / str(pid) / "cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


def _below(path: str, mounted: str) -> tuple[str, ...]:
    """Return the group's path below the part of the hierarchy that is mounted."""
    if ".." in PurePosixPath(path).parts:  # outside what this container can see
        return ()
    try:
        return PurePosixPath(path).relative_to(mounted).parts
    except ValueError:
        return ()


def _unescaped(path: str) -> str:
    """Undo the octal escapes that mountinfo writes for spaces and the like."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)


def read_text(path: Path) -> str:
    """Return the text of a small file, or "" if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""

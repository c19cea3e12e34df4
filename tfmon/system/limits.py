"""The limits of a process by its control groups."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from tfmon.model.readings import Missing

NO_GROUP = Missing("no control group that limits CPU is visible here")
_MEMORY_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""Limit, use, and the field for files, in version 2 and 1."""


def quota_cores(root: Path = Path("/"), pid: int | str = "self") -> float | None:
    """Return the lowest limit of the group and all groups above.

    Source: `cpu.max` (v2), `cpu.cfs_quota_us` and `cpu.cfs_period_us` (v1).
    """
    return quota_of(group_folders("cpu", root, pid))


def quota_of(folders: Iterable[Path]) -> float | None:
    """Return the lowest limit of groups."""
    return min((limit for folder in folders if (limit := _limit(folder)) is not None), default=None)


def group_folders(controller: str, root: Path = Path("/"), pid: int | str = "self") -> tuple[Path, ...]:
    """Return the folders of the process's group and the groups above it.

    Source: /proc/PID/cgroup and /proc/PID/mountinfo.
    """
    return tuple(dict.fromkeys(_folders(root, controller, pid)))


def read_throttling(folders: Sequence[Path]) -> dict[Path, tuple[int, int]]:
    """Return the active and the exhausted quota periods of each group.

    Source: nr_periods and nr_throttled in `cpu.stat`.
    """
    read: dict[Path, tuple[int, int]] = {}
    for folder in folders:
        fields = read_fields(folder / "cpu.stat")
        try:
            read[folder] = int(fields["nr_periods"]), int(fields["nr_throttled"])
        except (KeyError, ValueError):
            continue
    return read


def read_memory(meminfo: Path = Path("/proc/meminfo")) -> tuple[int, int] | None:
    """Return the machine's memory and its available memory."""
    result = dict(re.findall(r"^(MemTotal|MemAvailable):\s+(\d+) kB$", read_text(meminfo), re.MULTILINE))
    return (1024 * int(result["MemTotal"]), 1024 * int(result["MemAvailable"])) if len(result) == 2 else None


def limited_memory(total: int, available: int, root: Path = Path("/")) -> tuple[int, int]:
    """Return the memory that this process may use, and the free part, including files.

    Source: memory.max, memory.current and memory.stat (v2), or memory.limit_in_bytes, memory.usage_in_bytes and
    memory.stat (v1).
    """
    for folder in group_folders("memory", root):
        for limit, usage, files in _MEMORY_FILES:
            most, used = read_text(folder / limit).strip(), read_text(folder / usage).strip()
            if most.isdecimal() and used.isdecimal():
                left = int(most) - int(used) + int(read_fields(folder / "memory.stat").get(files, 0))
                total, available = min(total, int(most)), max(0, min(available, left))
    return total, available


def _limit(folder: Path) -> float | None:
    fields = read_text(folder / "cpu.max").split()
    if not fields:
        fields = [read_text(folder / "cpu.cfs_quota_us").strip(), read_text(folder / "cpu.cfs_period_us").strip()]
    try:
        quota, period = int(fields[0]), int(fields[1])
    except (ValueError, IndexError):  # "max", or no such file
        return None
    return quota / period if quota > 0 and period > 0 else None


def _folders(root: Path, controller: str, pid: int | str) -> Iterator[Path]:
    paths = _group_paths(root, pid)
    for line in read_text(root / "proc" / str(pid) / "mountinfo").splitlines():
        mount, _, source = line.partition(" - ")
        fields, kind = mount.split(), source.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2":
            path = paths.get("")
        elif kind[0] == "cgroup" and controller in kind[2].split(","):
            path = paths.get(controller)
        else:
            continue
        if path is not None:
            top = root / _unescaped(fields[4]).lstrip("/")
            parts = _below(path, _unescaped(fields[3]))
            yield from (top.joinpath(*parts[:length]) for length in range(len(parts), -1, -1))


def _group_paths(root: Path, pid: int | str) -> dict[str, str]:
    paths: dict[str, str] = {}
    for line in read_text(root / "proc" / str(pid) / "cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


def _below(path: str, mounted: str) -> tuple[str, ...]:
    if ".." in PurePosixPath(path).parts:  # outside this container
        return ()
    try:
        return PurePosixPath(path).relative_to(mounted).parts
    except ValueError:
        return ()


def _unescaped(path: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)


def read_fields(file: Path) -> dict[str, str]:
    """Return the words and values of a file of the kernel, which may be missing."""
    return dict(line.split(" ", 1) for line in read_text(file).splitlines() if " " in line)


def read_text(path: Path) -> str:
    """Return the text of a file, or ""."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


GROUP_KILLS = "the kernel killed {} in this control group for lack of memory just then"
MOST_COUNTS = 60
UNLIMITED = 2**60
"""No limit, in version 1."""
MACHINE_KILLS = "the kernel killed {} on this machine for lack of memory just then"


class MemoryKills:
    """Counts the processes that the kernel kills for lack of memory.

    Source: `oom_kill` in `memory.events` (v2) or `memory.oom_control` (v1) of this group, and in /proc/vmstat.
    Thread: one at a time.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        folders, names = group_folders("memory", root), ("memory.events", "memory.oom_control")
        files = (folder / name for folder in folders for name in names)
        group = next((file for file in files if "oom_kill" in read_fields(file)), root / "none")
        self._files = group, root / "proc/vmstat"
        self._counts = deque([(0, self._read())], MOST_COUNTS)

    def count(self, at_ns: int) -> None:
        """Read and store the count."""
        self._counts.append((at_ns, self._read()))

    def since(self, at_ns: int) -> str:
        """Return a text about later kills; the last count may include a slow end."""
        before = next((counts for counted_ns, counts in reversed(self._counts) if counted_ns <= at_ns), None)
        before = before or self._counts[0][1]
        group, machine = (now - then for now, then in zip(self._read(), before, strict=True))
        if group > 0:
            folders = group_folders("memory", self._root)
            texts = [read_text(folder / name).strip() for folder in folders for name, *_ in _MEMORY_FILES]
            limits = [int(text) for text in texts if text.isdecimal() and int(text) < UNLIMITED]
            limit = f"; its limit is {min(limits) / 2**30:.2f} GiB" if limits else ""
            return GROUP_KILLS.format(_processes(group)) + limit
        return MACHINE_KILLS.format(_processes(machine)) if machine > 0 else ""

    def _read(self) -> list[int]:
        return [int(read_fields(file).get("oom_kill", 0)) for file in self._files]


def _processes(count: int) -> str:
    return "a process" if count == 1 else f"{count} processes"

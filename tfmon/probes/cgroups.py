"""What a container or a service manager lets this process use: Linux control groups, versions 1 and 2."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tfmon.model.readings import Missing

NO_GROUP = Missing("no control group that limits CPU is seen here")


@dataclass(frozen=True, slots=True)
class Throttling:
    """What the quota of one group has cost since the group was made."""

    periods: int
    """Periods that passed while the group had a quota and something to run."""
    throttled: int
    """Those of them in which it used the quota up."""
    stood_still_s: float
    """Summed over the cores that the group wanted."""


def quota_cores(root: Path = Path("/"), pid: int | str = "self") -> float | None:
    """Return how many cores the process may keep busy on average, or None without a limit.

    The tightest limit of its group and of every group above it counts.
    Source: `cpu.max` (v2), `cpu.cfs_quota_us` and `cpu.cfs_period_us` (v1), found through /proc/PID/cgroup
    and /proc/PID/mountinfo.
    """
    limits = [limit for folder in _cpu_folders(root, pid) if (limit := _limit(folder)) is not None]
    return min(limits, default=None)


def cpu_folders(root: Path = Path("/"), pid: int | str = "self") -> tuple[Path, ...]:
    """Return the folders of the process's group and of the groups above it that limit or count CPU time.

    Source: /proc/PID/cgroup and /proc/PID/mountinfo.
    """
    return tuple(dict.fromkeys(_cpu_folders(root, pid)))


def read_throttling(folders: Sequence[Path]) -> dict[Path, Throttling]:
    """Return what each group's quota has cost; groups that keep no such count are left out.

    Source: `cpu.stat`: nr_periods, nr_throttled, and throttled_usec (v2) or throttled_time in ns (v1).
    """
    read: dict[Path, Throttling] = {}
    for folder in folders:
        fields = dict(line.split(" ", 1) for line in _text(folder / "cpu.stat").splitlines() if " " in line)
        try:
            stood_still_s = (
                int(fields["throttled_usec"]) / 1e6
                if "throttled_usec" in fields
                else int(fields["throttled_time"]) / 1e9
            )
            read[folder] = Throttling(int(fields["nr_periods"]), int(fields["nr_throttled"]), stood_still_s)
        except (KeyError, ValueError):
            continue
    return read


def _limit(folder: Path) -> float | None:
    """Return the limit that one group sets, in cores."""
    words = _text(folder / "cpu.max").split()
    if not words:
        words = [_text(folder / "cpu.cfs_quota_us").strip(), _text(folder / "cpu.cfs_period_us").strip()]
    try:
        quota, period = int(words[0]), int(words[1])
    except (ValueError, IndexError):  # "max", or no such file
        return None
    return quota / period if quota > 0 and period > 0 else None


def _cpu_folders(root: Path, pid: int | str) -> Iterator[Path]:
    """Yield the folder of the process's group and of each group above it, in every hierarchy that limits CPU."""
    paths = _group_paths(root, pid)
    for line in _text(root / "proc" / str(pid) / "mountinfo").splitlines():
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
            yield from _upwards(top, _below(path, _unescaped(fields[3])))


def _group_paths(root: Path, pid: int | str) -> dict[str, str]:
    """Return the group's path by controller; version 2 has the controller ""."""
    paths: dict[str, str] = {}
    for line in _text(root / "proc" / str(pid) / "cgroup").splitlines():
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


def _upwards(top: Path, parts: tuple[str, ...]) -> Iterator[Path]:
    for length in range(len(parts), -1, -1):
        yield top.joinpath(*parts[:length])


def _unescaped(path: str) -> str:
    """Undo the octal escapes that mountinfo writes for spaces and the like."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""

"""Whether the kernel has just killed processes for lack of memory: it sends SIGKILL, and tells nobody why."""

from __future__ import annotations

from pathlib import Path

GROUP = "the kernel killed {} in this control group for lack of memory just then"
MACHINE = "the kernel killed {} on this machine for lack of memory just then"


class MemoryKills:
    """Counts them again and again, so that what is new can be told.

    Source: `oom_kill` in the `memory.events` (control groups, version 2) or `memory.oom_control` (version 1) of
    this process's group, which its children share, and in /proc/vmstat. Elsewhere nothing is known.
    Thread: one at a time; the caller holds a lock.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._group = _group_file(root)
        self._before = self._read()
        self._latest = self._before

    def count(self) -> None:
        """Count; what was new at the count before is not new any more."""
        self._before, self._latest = self._latest, self._read()

    def told(self) -> str:
        """Return what is new since the count before the last one, in words; empty for nothing."""
        group, machine = (_more(now, before) for now, before in zip(self._read(), self._before, strict=True))
        if group:
            return GROUP.format(_processes(group))
        return MACHINE.format(_processes(machine)) if machine else ""

    def _read(self) -> tuple[int | None, int | None]:
        group = _field(self._group) if self._group is not None else None
        return group, _field(self._root / "proc/vmstat")


def _more(now: int | None, before: int | None) -> int:
    return 0 if now is None or before is None else max(0, now - before)


def _processes(count: int) -> str:
    return "a process" if count == 1 else f"{count} processes"


def _field(path: Path) -> int | None:
    """Return the value of the line `oom_kill` of a file."""
    try:
        for line in path.read_text(encoding="ascii", errors="replace").splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    except (OSError, ValueError):
        pass
    return None


def _group_file(root: Path) -> Path | None:
    """Return the file that counts the kills of this process's group, None where there is none.

    In a container the group's path may be the host's; what is mounted is then the group itself.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    top = root / "sys/fs/cgroup"
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if "memory" in controllers.split(","):
            places, name = (top / "memory" / path.lstrip("/"), top / "memory"), "memory.oom_control"
        elif not controllers:
            places, name = (top / path.lstrip("/"), top), "memory.events"
        else:
            continue
        for place in places:
            if _field(place / name) is not None:
                return place / name
    return None

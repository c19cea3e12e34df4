"""Users and command lines of processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from pathlib import Path

from tfmon.model.codec import clean
from tfmon.model.gpu_samples import ProcessName
from tfmon.probes.processes import read_file, read_stat

LONGEST = 300
KEPT_S = 30.0
_MOST_PARENTS = 64


class ProcessNames:
    """Reads users and command lines, and keeps them. Linux only. Thread: one."""

    def __init__(
        self,
        root: Path = Path("/"),
        *,
        own_pid: int | None = None,
        clock_s: Callable[[], float] = time.monotonic,
        user_of: Callable[[int], str] | None = None,
    ) -> None:
        self._proc = str(root / "proc")
        self._own_pid = os.getpid() if own_pid is None else own_pid
        self._clock_s = clock_s
        self._user_of = user_of or _user_of
        self._known: dict[int, tuple[float, ProcessName]] = {}

    def of(self, pids: Collection[int]) -> dict[int, ProcessName]:
        """Return the names of living, visible processes."""
        now_s = self._clock_s()
        kept = {pid: self._known[pid] for pid in pids if pid in self._known}
        for pid in pids:
            if (pid not in kept or now_s >= kept[pid][0]) and (name := self._read(pid)) is not None:
                # It may be starting.
                kept[pid] = now_s + (KEPT_S if " " in name.command else 0.0), name
            elif pid in kept and not os.path.exists(f"{self._proc}/{pid}"):
                del kept[pid]
        self._known = kept
        return {pid: name for pid, (_, name) in kept.items()}

    def _read(self, pid: int) -> ProcessName | None:
        try:
            owner = os.stat(f"{self._proc}/{pid}").st_uid
        except OSError:
            return None
        argv = (read_file(f"{self._proc}/{pid}/cmdline") or b"").rstrip(b"\0").replace(b"\0", b" ")
        result = None if argv else read_stat(self._proc, pid)
        command = (argv if result is None else result[0]).decode("utf-8", "replace")
        return ProcessName(self._user_of(owner), one_line(command, LONGEST), self._is_ours(pid))

    def _is_ours(self, pid: int) -> bool:
        for _ in range(_MOST_PARENTS):
            if pid == self._own_pid:
                return True
            result = read_stat(self._proc, pid) if pid > 1 else None
            if result is None:
                return False
            pid = int(result[1][1])
        return False


def one_line(text: str, limit: int) -> str:
    """Return a safe line, cut to a limit."""
    return " ".join(clean(text, 4 * limit).split())[:limit]


def _user_of(number: int) -> str:
    import pwd

    try:
        return one_line(pwd.getpwuid(number).pw_name, 40)
    except (KeyError, OSError):
        return str(number)

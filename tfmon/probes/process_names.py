"""Users and command lines of processes."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection
from pathlib import Path

from tfmon.model.codec import clean
from tfmon.model.gpu_samples import ProcessName
from tfmon.probes.processes import read_file, read_stat

LONGEST = 300
_MOST_PARENTS = 64


class ProcessNames:
    """Reads users and command lines. Linux only. Thread: one."""

    def __init__(
        self, root: Path = Path("/"), *, own_pid: int | None = None, user_of: Callable[[int], str] | None = None
    ) -> None:
        self._proc = str(root / "proc")
        self._own_pid = os.getpid() if own_pid is None else own_pid
        self._user_of = user_of or _user_of

    def read(self, pids: Collection[int]) -> dict[int, ProcessName]:
        """Return the names of living, visible processes."""
        return {pid: name for pid in pids if (name := self._read_name(pid)) is not None}

    def _read_name(self, pid: int) -> ProcessName | None:
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
    """Return text as one safe line, cut to `limit`."""
    return " ".join(clean(text, 4 * limit).split())[:limit]


@functools.cache
def _user_of(number: int) -> str:
    import pwd

    try:
        return one_line(pwd.getpwuid(number).pw_name, 40)
    except (KeyError, OSError):
        return str(number)

"""Users and command lines of processes."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Collection
from pathlib import Path

from tfmon.model.codec import clean
from tfmon.model.gpu_samples import ProcessName
from tfmon.probes.processes import read_file, read_stat

LONGEST = 300
_MOST_PARENTS = 64


def read_names(pids: Collection[int], root: Path = Path("/")) -> dict[int, ProcessName]:
    """Return the users and command lines of living, visible processes. Linux only."""
    names, proc = {}, str(root / "proc")
    for pid in pids:
        with contextlib.suppress(OSError):
            user = user_of(os.stat(f"{proc}/{pid}").st_uid)
            argv = (read_file(f"{proc}/{pid}/cmdline") or b"").rstrip(b"\0").replace(b"\0", b" ")
            result = None if argv else read_stat(proc, pid)
            command = (argv if result is None else result[0]).decode("utf-8", "replace")
            names[pid] = ProcessName(user, one_line(command, LONGEST), _is_ours(proc, pid))
    return names


def _is_ours(proc: str, pid: int) -> bool:
    for _ in range(_MOST_PARENTS):
        if pid == os.getpid():
            return True
        result = read_stat(proc, pid) if pid > 1 else None
        if result is None:
            return False
        pid = int(result[1][1])
    return False


def one_line(text: str, limit: int) -> str:
    """Return text as one safe line, cut to `limit`."""
    return " ".join(clean(text, 4 * limit).split())[:limit]


@functools.cache
def user_of(number: int) -> str:
    """Return a user's name, or the number as text."""
    import pwd

    try:
        return one_line(pwd.getpwuid(number).pw_name, 40)
    except (KeyError, OSError):
        return str(number)

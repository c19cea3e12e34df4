"""Who runs a process, and with what command line: of any user, without control characters."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from pathlib import Path

from tfmon.model.codec import clean
from tfmon.model.readings import ProcessName

LONGEST = 300
"""Characters of a command line; the rest is cut off."""
KEPT_S = 30.0
"""How long a name is believed: a process may run another program by then."""
_MOST_PARENTS = 64


class ProcessNames:
    """Reads users and command lines, and keeps them while their processes live.

    Source: the owner of /proc/PID, /proc/PID/cmdline, else the name in /proc/PID/stat; nothing on other systems.
    Thread: one.
    """

    def __init__(
        self,
        root: Path = Path("/"),
        *,
        own_pid: int | None = None,
        clock_s: Callable[[], float] = time.monotonic,
        user_of: Callable[[int], str] | None = None,
    ) -> None:
        """Read below a root.

        Args:
            root: Where /proc is.
            own_pid: The process whose children are ours; this one by default.
            clock_s: The time.
            user_of: Returns the name of a user by number; the system's by default.
        """
        self._proc = root / "proc"
        self._own_pid = os.getpid() if own_pid is None else own_pid
        self._clock_s = clock_s
        self._user_of = user_of or _user_of
        self._known: dict[int, tuple[float, ProcessName]] = {}
        """Until when a name is believed, and the name."""

    def of(self, pids: Collection[int]) -> dict[int, ProcessName]:
        """Return the names of processes; one that is gone, or that this user may not see, is missing."""
        now_s = self._clock_s()
        kept = {pid: self._known[pid] for pid in pids if pid in self._known}
        for pid in pids:
            if (pid not in kept or now_s >= kept[pid][0]) and (name := self._read(pid)) is not None:
                # One that has no command line yet is starting, and is read again the next time.
                kept[pid] = now_s + (KEPT_S if " " in name.command else 0.0), name
            elif pid in kept and not (self._proc / str(pid)).exists():
                del kept[pid]
        self._known = kept
        return {pid: name for pid, (_, name) in kept.items()}

    def _read(self, pid: int) -> ProcessName | None:
        folder = self._proc / str(pid)
        try:
            owner = folder.stat().st_uid
        except OSError:
            return None
        try:
            words = (folder / "cmdline").read_bytes()[: 4 * LONGEST].rstrip(b"\0").replace(b"\0", b" ")
        except OSError:
            words = b""
        command = words.decode("utf-8", "replace") or self._short_name(pid)
        return ProcessName(self._user_of(owner), one_line(command, LONGEST), self._is_ours(pid))

    def _short_name(self, pid: int) -> str:
        """Return the kernel's name of a process that has no command line."""
        line = self._stat(pid)
        return line[line.find("(") + 1 : line.rfind(")")] if line else ""

    def _is_ours(self, pid: int) -> bool:
        """Return whether a process descends from this one; lanes do."""
        for _ in range(_MOST_PARENTS):
            if pid == self._own_pid:
                return True
            line = self._stat(pid)
            if not line:
                return False
            pid = int(line[line.rindex(")") + 2 :].split()[1])
            if pid <= 1:
                return pid == self._own_pid
        return False

    def _stat(self, pid: int) -> str:
        try:
            return (self._proc / str(pid) / "stat").read_bytes().decode("utf-8", "replace")
        except OSError:
            return ""


def one_line(text: str, limit: int) -> str:
    """Return a text of others in one line, without what could steer a terminal, cut to a limit."""
    return " ".join(clean(text, 4 * limit).split())[:limit]


def _user_of(number: int) -> str:
    import pwd  # late: not on every system

    try:
        return one_line(pwd.getpwuid(number).pw_name, 40)
    except (KeyError, OSError):
        return str(number)

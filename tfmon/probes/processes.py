"""Reads each process: its use, its user and its command line."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeAlias

from tfmon.model.codec import clean
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.gpu_samples import ProcessName
from tfmon.model.readings import Missing, Reading
from tfmon.probes.machine import need_psutil

MACOS = sys.platform == "darwin"
MOST_THREADS = 64
"""Reading a thread takes 5 µs."""
WHOLE_EVERY_S = 30.0
ENDED = Missing("the process has ended")
_LIBPROC = "/usr/lib/libproc.dylib"
_RUSAGE_INFO_V4 = 4
_BUFFER_BYTES, _FOOTPRINT_AT = 1024, 72
"""`proc_pid_rusage`: buffer size, and offset of `ri_phys_footprint`."""


@dataclass(frozen=True, slots=True)
class Row:
    """A process."""

    pid: int
    parent: int
    group: int
    session: int
    started_s: float
    """Identifies the process together with the pid."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Use since the process began."""

    parent: int
    started_s: float
    own_s: float
    reaped_s: float
    """Of reaped descendants, or 0 if unknown."""
    private_bytes: Reading
    ended: bool
    waited_s: float | None = None
    """Time in which the threads waited for a core."""
    signal: int = 0
    """Ended a zombie."""


class LinuxProcesses:
    """Reads /proc, because psutil would open more files.

    Source: proc_pid_stat(5) (clock ticks of 10 ms), proc_pid_statm(5), and run queue times in schedstat.
    """

    def __init__(
        self, root: str | Path = "/proc", *, now_s: Callable[[], float] | None = None, page_bytes: int = 0
    ) -> None:
        self._root = str(root)
        self._now_s = now_s
        self._tick_s = 1.0 / os.sysconf("SC_CLK_TCK")
        self._page_bytes = page_bytes or os.sysconf("SC_PAGE_SIZE")
        self._table: dict[int, Row] = {}
        self._whole_at_s = float("-inf")

    def now_s(self) -> float:
        """Return the machine's uptime."""
        return self._now_s() if self._now_s is not None else time.clock_gettime(time.CLOCK_BOOTTIME)

    def rows(self) -> dict[int, Row]:
        """Return the table; changed parents and pids are noticed within `WHOLE_EVERY_S`.

        It reads only new processes: 2 000 take 25 ms.
        """
        now_s = self.now_s()
        if now_s - self._whole_at_s >= WHOLE_EVERY_S:
            self._table, self._whole_at_s = {}, now_s
        table: dict[int, Row] = {}
        for name in os.listdir(self._root):
            if not name.isdigit():
                continue
            pid = int(name)
            row = self._table.get(pid)
            if row is None and (result := read_stat(self._root, name)) is not None:
                fields = result[1]
                started_s = int(fields[19]) * self._tick_s
                row = Row(pid, int(fields[1]), int(fields[2]), int(fields[3]), started_s)
            if row is not None:
                table[pid] = row
        self._table = table
        return dict(table)

    def usage(self, pid: int) -> Usage | None:
        """Read one process."""
        result = read_stat(self._root, pid)
        if result is None:
            return None
        fields = result[1]
        ended = fields[0] in (b"Z", b"X", b"x")
        private: Reading = ENDED
        if not ended:
            pages = read_file(f"{self._root}/{pid}/statm")
            if not pages:
                return None
            _, resident, shared = pages.split()[:3]
            private = max(0, int(resident) - int(shared)) * self._page_bytes
        return Usage(
            parent=int(fields[1]),
            started_s=int(fields[19]) * self._tick_s,
            own_s=(int(fields[11]) + int(fields[12])) * self._tick_s,
            reaped_s=(int(fields[13]) + int(fields[14])) * self._tick_s,
            private_bytes=private,
            ended=ended,
            waited_s=None if ended else self._waited_s(pid),
            signal=int(fields[49]) & 0x7F if ended and len(fields) > 49 else 0,
        )

    def _waited_s(self, pid: int) -> float | None:
        tasks = f"{self._root}/{pid}/task"
        try:
            threads = os.listdir(tasks)[:MOST_THREADS]
        except OSError:
            return None
        times = [line.split() for thread in threads if (line := read_file(f"{tasks}/{thread}/schedstat"))]
        return sum(int(fields[1]) for fields in times) / 1e9 if times else None


def read_stat(root: str, pid: int | str) -> tuple[bytes, list[bytes]] | None:
    """Return a process's name and the fields after it."""
    line = read_file(f"{root}/{pid}/stat")
    if not line:
        return None
    # The last bracket ends the name, which may have brackets.
    end = line.rindex(b")")
    return line[line.find(b"(") + 1 : end], line[end + 2 :].split()


def uses_of(pid: int, *, ports: bool = True) -> dict[str, str]:
    """Return the open files (`w`) and listening TCP ports (`b`) of a process."""
    try:
        process = need_psutil().Process(pid)
        files = {file.path: "w" for file in process.open_files() if getattr(file, "mode", "r") != "r"}
        listens = (
            [connection for connection in process.net_connections("tcp") if connection.status == "LISTEN"]
            if ports
            else []
        )
    except Exception:  # noqa: BLE001 - psutil's own types: it ended, is another user's, or psutil is missing
        return {}
    return files | {f"port {listen.laddr.port}": "b" for listen in listens}


def read_file(path: str) -> bytes | None:
    """Return the beginning of a file of /proc."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(descriptor, 4096)
    except OSError:  # the process has ended
        return None
    finally:
        os.close(descriptor)


class PsutilProcesses:
    """Reads the table through psutil, on systems without /proc. macOS keeps no CPU time of reaped children."""

    def __init__(self) -> None:
        self._psutil = need_psutil()

    def now_s(self) -> float:
        """Return the time of psutil's `create_time`."""
        return time.time()

    def rows(self) -> dict[int, Row]:
        """Read the whole table."""
        table: dict[int, Row] = {}
        for process in self._psutil.process_iter(["ppid", "create_time"]):
            facts = process.info
            group, session = _group(process.pid)
            if facts["create_time"] is not None:
                table[process.pid] = Row(process.pid, facts["ppid"] or 0, group, session, facts["create_time"])
        return table

    def usage(self, pid: int) -> Usage | None:
        """Read one process."""
        try:
            process = self._psutil.Process(pid)
            with process.oneshot():
                times = process.cpu_times()
                ended = process.status() == self._psutil.STATUS_ZOMBIE
                return Usage(
                    parent=process.ppid(),
                    started_s=process.create_time(),
                    own_s=times.user + times.system,
                    reaped_s=getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0),
                    private_bytes=self._private_bytes(process, ended),
                    ended=ended,
                )
        except self._psutil.Error:
            return None

    def _private_bytes(self, process: Any, ended: bool) -> Reading:
        if ended:
            return ENDED
        footprint = read_footprint(process.pid) if MACOS else None
        if footprint is not None:
            return footprint
        try:
            return int(process.memory_full_info().uss)
        except self._psutil.AccessDenied:
            return Missing("the system does not permit tfmon to read it")


Processes: TypeAlias = LinuxProcesses | PsutilProcesses


def process_table() -> Processes:
    """Return this machine's table, or raise NoReadingError."""
    return LinuxProcesses() if sys.platform == "linux" else PsutilProcesses()


def _group(pid: int) -> tuple[int, int]:
    try:
        return os.getpgid(pid), os.getsid(pid)
    except OSError:
        return 0, 0


@functools.cache
def _library() -> Any:
    return ctypes.CDLL(_LIBPROC)


def read_footprint(pid: int) -> int | None:
    """Return the private bytes on macOS, in memory or compressed, as Activity Monitor does.

    This includes memory for the GPU. Source: `ri_phys_footprint` of rusage_info_v4; only for the same user.
    """
    buffer = (ctypes.c_uint8 * _BUFFER_BYTES)()
    try:
        failed = _library().proc_pid_rusage(ctypes.c_int(pid), ctypes.c_int(_RUSAGE_INFO_V4), buffer)
    except (OSError, AttributeError):
        return None
    return None if failed else int.from_bytes(bytes(buffer[_FOOTPRINT_AT : _FOOTPRINT_AT + 8]), "little")


LONGEST_COMMAND = 300
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
            names[pid] = ProcessName(user, one_line(command, LONGEST_COMMAND), _is_ours(proc, pid))
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

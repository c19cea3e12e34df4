"""The folder for persistent data, and the lock."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tfmon import units
from tfmon.errors import TfmonError

FOLDER_VARIABLE = "TFMON_STATE"
LOOK_EVERY_S = 0.1
TOLD_EVERY_S = 1.0
Tell = Callable[[str], None]
_IN_THIS_PROCESS = threading.Lock()


def state_folder() -> Path:
    """Return the folder for persistent data."""
    from platformdirs import user_state_path

    named = os.environ.get(FOLDER_VARIABLE)
    return Path(named) if named else user_state_path("tfmon", appauthor=False)


@contextlib.contextmanager
def alone(wait: bool, tell: Tell | None) -> Iterator[None]:
    """Wait until Python's other race is over, or raise TfmonError."""
    since_s, told_s, looks = time.monotonic(), -TOLD_EVERY_S, 0
    with contextlib.ExitStack() as entered:
        while other := _enter(entered):
            looks += 1
            if not wait and looks > 1:  # a race on a terminal locks it for a moment
                raise TfmonError(f"another race is under way{other}", "wait=True waits until it is over")
            now_s = time.monotonic()
            if tell is not None and now_s >= told_s + TOLD_EVERY_S:
                told_s = now_s
                tell(f"another race is under way{other}; waiting for its end: {units.clock(now_s - since_s)}")
            time.sleep(LOOK_EVERY_S)
        yield


@contextlib.contextmanager
def beside() -> Iterator[str]:
    """Announce a race; return the text about another."""
    with contextlib.ExitStack() as entered:
        with contextlib.ExitStack() as looked:
            other = _enter(looked)
        other = other or _enter(entered, "terminal.lock")
        yield (
            f"another race is under way{other}: the lanes of each disturb the figures of the other"
            if other
            else ""
        )


def _enter(entered: contextlib.ExitStack, name: str = "race.lock") -> str:
    """Lock both files; return the other process."""
    if not _IN_THIS_PROCESS.acquire(blocking=False):
        return " in this process"
    with contextlib.ExitStack() as mine:
        mine.callback(_IN_THIS_PROCESS.release)
        path = state_folder() / name
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError:
            fd = None  # other processes are not seen
        if fd is not None:
            mine.callback(os.close, fd)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(fd, 0)
                os.write(fd, str(os.getpid()).encode())
            except BlockingIOError:
                return f" (process {os.read(fd, 20).decode('ascii', 'replace')})"
            except OSError:
                pass  # a file system without locks
        entered.push(mine.pop_all())
    return ""

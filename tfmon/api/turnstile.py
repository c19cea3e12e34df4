"""One race at a time: two at once on one machine would each measure the other."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator

from tfmon import units
from tfmon.errors import TfmonError
from tfmon.runner import state_file
from tfmon.runner.headless import TOLD_EVERY_S

POLL_S = 0.1
_IN_THIS_PROCESS = threading.Lock()


@contextlib.contextmanager
def alone(wait: bool, tell: Callable[[str], None] | None) -> Iterator[None]:
    """Wait until no other race of this user that Python began is under way, in this process or another.

    Other processes are seen where the state folder can be written.

    Raises:
        TfmonError: one is, and it is not to be waited for.
    """
    since_s, told_s = time.monotonic(), 0.0
    with contextlib.ExitStack() as entered:
        while not _enter(entered):
            if not wait:
                raise TfmonError("another race is under way", "wait=True waits until it is over")
            now_s = time.monotonic()
            if tell is not None and now_s >= told_s + TOLD_EVERY_S:
                told_s = now_s
                tell(f"another race is under way; waiting for its end: {units.clock(now_s - since_s)}")
            time.sleep(POLL_S)
        yield


def _enter(entered: contextlib.ExitStack) -> bool:
    """Take both locks, to be given back with `entered`; return False where one is taken."""
    if not _IN_THIS_PROCESS.acquire(blocking=False):
        return False
    with contextlib.ExitStack() as mine:
        mine.callback(_IN_THIS_PROCESS.release)
        path = state_file.path("race").with_suffix(".lock")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError:
            fd = None  # a folder that cannot be written: other processes are not seen
        if fd is not None:
            mine.callback(os.close, fd)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            except OSError:
                pass  # a file system without locks
        entered.push(mine.pop_all())
    return True

"""Locks on files and folders in use, which end with the process that holds them."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path


def lock(fd: int) -> None:
    """Lock an open file or folder until it is closed, where its file system has locks."""
    with contextlib.suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_locked(path: Path) -> bool:
    """Return whether a process has locked a file or folder, or it cannot be opened."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False

"""What has become of a process."""

from __future__ import annotations

import psutil


def gone(pid: int) -> bool:
    """Whether a process has ended; one that is dead and not yet reaped by init counts."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def suspended(pid: int) -> bool:
    return psutil.Process(pid).status() == psutil.STATUS_STOPPED

"""What has become of a process."""

from __future__ import annotations

import psutil


def gone(process: int | psutil.Process) -> bool:
    """Whether a process has ended; one that is dead and not yet reaped by init counts."""
    try:
        known = psutil.Process(process) if isinstance(process, int) else process
        return not known.is_running() or known.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def suspended(pid: int) -> bool:
    return psutil.Process(pid).status() == psutil.STATUS_STOPPED

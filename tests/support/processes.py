"""Run programs to their end, and query the state of processes."""

import os
import subprocess
import sys
from pathlib import Path

import psutil

from support.waiting import HANGS_S


def run_python(*words: object, folder: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    command, variables = [sys.executable, *map(str, words)], {**os.environ, **environment}
    return subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, timeout=HANGS_S, check=False
    )


def gone(process: int | psutil.Process) -> bool:
    """Return whether a process has ended, even if init has not reaped it yet."""
    try:
        known = psutil.Process(process) if isinstance(process, int) else process
        return not known.is_running() or known.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def suspended(pid: int) -> bool:
    return psutil.Process(pid).status() == psutil.STATUS_STOPPED

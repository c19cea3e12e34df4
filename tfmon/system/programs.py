"""Runs short programs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence


def run_program(
    argv: Sequence[str], timeout_s: float, *, environ: Mapping[str, str] | None = None, folder: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program without input; end its session if it takes too long. Raises OSError or TimeoutExpired."""
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=environ,
        cwd=folder,
        start_new_session=True,
    ) as child:
        try:
            out, err = child.communicate(timeout=timeout_s)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise subprocess.TimeoutExpired(argv, timeout_s, *child.communicate()) from None
            raise
    return subprocess.CompletedProcess(argv, child.returncode, out, err)

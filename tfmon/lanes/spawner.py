"""The thread that starts all children.

Linux tells a child of its parent's death when the *thread* that started it ends (prctl(2), PR_SET_PDEATHSIG). So
one thread starts them all, and lives as long as the monitor.
"""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any


@functools.cache
def _spawner() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="tfmon-spawn")


def start_child(command: Sequence[str], **how: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401
    """Start a child as `subprocess.Popen` does.

    Errors: OSError when it cannot be started.
    """
    started: subprocess.Popen[bytes] = _spawner().submit(lambda: subprocess.Popen(command, **how)).result()
    return started

"""At which priority lanes are started, and how tfmon yields to them."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

YIELDING_NICE = 5
"""A lane gets three times the CPU of a thread with this nice value that wants the same core."""


class ProcessLauncher:
    """Calls functions in one thread that keeps the priority the program was started with.

    A child inherits the nice value of the thread that starts it, and only root may lower it again. So a thread
    that yields to the lanes must not start them.

    Thread: any.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tfmon-launcher")
        # Make the thread now: at the first start, the caller may have yielded already.
        self._pool.submit(threading.get_native_id).result()

    def __call__(
        self, function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """Call a function in the thread that starts processes; its result and exceptions are passed on."""
        return self._pool.submit(function, *args, **kwargs).result()

    def close(self) -> None:
        """End the thread."""
        self._pool.shutdown(wait=True)


def yield_to_lanes() -> None:
    """Give the calling thread, and those it will start, a lower priority than the lanes have.

    Linux only, where each thread has a nice value. Elsewhere the process has one, and the lanes would inherit it.
    Source: setpriority(2), "C library/kernel differences".
    """
    if sys.platform != "linux":
        return
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, 0, max(nice, min(19, nice + YIELDING_NICE)))

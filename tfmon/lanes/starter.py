"""Processes are started in one thread that keeps the priority the program was started with."""

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
"""A lane gets three times the CPU of a thread with this that wants the same core."""


class Starter:
    """Calls functions in its own thread.

    A child gets the nice value of the thread that starts it, and nobody but root may lower it again. So whoever
    yields to the lanes must not be the one to start them.

    Thread: any.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tfmon-starter")
        # The thread is made here, and not at the first start, when the caller may have yielded already.
        self._pool.submit(threading.get_native_id).result()

    def __call__(
        self, function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """Call a function and return what it returns.

        Errors: whatever it raises.
        """
        return self._pool.submit(function, *args, **kwargs).result()

    def close(self) -> None:
        """End the thread."""
        self._pool.shutdown(wait=True)


def yield_to_lanes() -> None:
    """Give the calling thread, and those it will make, a lower priority than the lanes have.

    Linux only, where a nice value belongs to a thread; elsewhere it belongs to the whole process, and the lanes
    would have it as well. Source: setpriority(2), "C library/kernel differences".
    """
    if sys.platform != "linux":
        return
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, 0, max(nice, min(19, nice + YIELDING_NICE)))

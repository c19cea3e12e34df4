"""Loading TensorFlow: at once for a lane that is waited for, or at the lowest priority for a spare child."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

LOWEST_NICE = 19


def load_everything() -> None:
    """Import TensorFlow, Keras and what trains with them; no device is touched.

    The collector rests meanwhile: it would go through hundreds of thousands of new objects again and again,
    which takes a fifth of the time, and what an import makes stays alive.

    Errors: whatever the import raises.
    """
    with _no_collections():
        import tensorflow  # noqa: F401, I001 - first, for its absence is the one that is told
        import keras  # noqa: F401
        import tfmon.trainer.loop
        import tfmon.trainer.steps  # noqa: F401


def load_yielding(load: Callable[[], None] = load_everything) -> bool:
    """Import the same at the lowest priority; return False if a thread would keep that priority.

    Nobody may raise a priority again, so it is not the process that gets the lowest one but a thread that
    ends with the import: on Linux each thread has a priority of its own, and elsewhere all stay as they are.
    NumPy comes first, for the threads of its BLAS are made with it and have their maker's priority.

    Errors: whatever the import raises.
    Thread: the main thread; it waits.
    Source: setpriority(2), "C library/kernel differences".
    """
    import numpy  # noqa: F401

    failure: list[BaseException] = []

    def work() -> None:
        if sys.platform == "linux":
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST_NICE)
        try:
            load()
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            failure.append(error)

    loader = threading.Thread(target=work, name="tfmon-loader")
    loader.start()
    loader.join()
    if failure:
        raise failure[0]
    return len({nice for thread, nice in _priorities() if thread != loader.native_id}) <= 1


def _priorities() -> Iterator[tuple[int, int]]:
    """Yield the threads of this process with their nice values; none where the system does not list them.

    Source: /proc/self/task/TID/stat, field 19 (proc_pid_stat(5)).
    """
    for task in Path("/proc/self/task").glob("*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            yield int(task.name), int((task / "stat").read_text().rpartition(")")[2].split()[16])


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()

"""What a child does when its monitor is gone: it ends, with everything that it started.

The end of the knob pipe tells it, and the inbox's thread then ends the whole process group. A child that holds
Python's lock for ever, in an extension, cannot run that thread: for it the kernel sends a signal when the parent
dies, whose handler is no Python, and the end comes a second later.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""From <linux/prctl.h>."""


def die_with_parent() -> None:
    """Have the kernel end this process a second after its parent's death; only Linux does that.

    The signal is SIGHUP, number 1, and its handler the C library's `alarm`: called as a handler is, with the
    number of the signal, it has SIGALRM sent in 1 s, which ends a process that does not care for it. A second, so
    that the inbox can end the group before.
    Source: prctl(2), signal(2), alarm(2). Errors: none; without it the pipe's end is all there is.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
        libc.signal.restype = ctypes.c_void_p
        libc.signal(signal.SIGHUP, ctypes.cast(libc.alarm, ctypes.c_void_p))
        libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGHUP), 0, 0, 0)


def end_group() -> None:
    """End this process and all that it started, if it leads a group of its own, as a lane's child does."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)

"""The time of a lane, which stops while the lane is suspended or paused.

A process does not notice its suspension, so the suspending process writes the duration into a shared file.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Callable

AT, SIZE = 64, 72
"""Offset of the word in the lane's file, and size of the file."""


def _map(fd: int, protection: int) -> ctypes.Array[ctypes.c_int64]:
    """Map the word of a lane's file, until the process ends.

    `mmap.mmap` would duplicate the descriptor, which a script could close.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    pointer, number = ctypes.c_void_p, ctypes.c_int
    libc.mmap.restype, libc.mmap.argtypes = pointer, (pointer, ctypes.c_size_t, *[number] * 3, ctypes.c_long)
    address = libc.mmap(None, SIZE, protection, mmap.MAP_SHARED, fd, 0)
    if address == pointer(-1).value:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return (ctypes.c_int64 * 1).from_address(address + AT)


class SuspendedTime:
    """Writes the suspended time of a lane.

    The word is the suspended time, or during a suspension the negative lane's time. The lane never reads a part of
    it. Thread: any; a suspension that two threads notice counts once.
    """

    def __init__(self, fd: int) -> None:
        self._word = _map(fd, mmap.PROT_READ | mmap.PROT_WRITE)

    def begins(self) -> None:
        """The lane has just been suspended."""
        if self._word[0] >= 0:
            self._word[0] -= time.monotonic_ns()

    def ends(self) -> None:
        """The lane is about to continue."""
        if self._word[0] < 0:
            self._word[0] += time.monotonic_ns()


class LaneClock:
    """The time of this lane; `time.monotonic_ns` until `follow`. Thread: any."""

    def __init__(self) -> None:
        self._word: ctypes.Array[ctypes.c_int64] = (ctypes.c_int64 * 1)()
        self._paused_ns = 0

    def follow(self, fd: int) -> None:
        """Read the suspended time from a file."""
        self._word = _map(fd, mmap.PROT_READ)

    def now_ns(self) -> int:
        """Return the lane's time."""
        word = self._word[0]
        return (time.monotonic_ns() - word if word >= 0 else -word) - self._paused_ns

    @property
    def suspended_ns(self) -> int:
        """The suspended time."""
        word = self._word[0]
        return word if word >= 0 else time.monotonic_ns() + word

    @property
    def stopped_ns(self) -> int:
        """The suspended and paused time."""
        return self.suspended_ns + self._paused_ns

    def stamp(self, at_ns: int) -> int:
        """Convert a time since the last stop to the machine's clock."""
        return at_ns + self.stopped_ns

    def pause(self, wait: Callable[[], object]) -> None:
        """Stop the clock while `wait` runs."""
        began_ns = self.now_ns()
        wait()
        self._paused_ns += self.now_ns() - began_ns


lane_clock = LaneClock()

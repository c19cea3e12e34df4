"""The time of a lane, which stands still while the lane is suspended or paused.

A process does not notice that it is stopped. So whoever stops it writes that into a file which both have mapped,
before it lets it go on. All durations that a lane reports are differences of this time.
"""

from __future__ import annotations

import mmap
import time
from array import array
from collections.abc import Callable

AT, SIZE = 64, 72
"""Where the word is in the lane's file, behind its token, and the size of the file."""


class SuspendedTime:
    """What the process that stops a lane writes: how long it was stopped, or when its time stands still.

    The word is the time for which the lane was stopped. While it is stopped, it is its time, negative. One word is
    written at once, so the lane never reads a part of it.

    Thread: any; a stop that two notice counts once.
    """

    def __init__(self, fd: int) -> None:
        """Write into the lane's file, which may be closed then."""
        self._word = memoryview(mmap.mmap(fd, SIZE))[AT:].cast("q")

    def begins(self) -> None:
        """Note that the lane has just been stopped."""
        if self._word[0] >= 0:
            self._word[0] -= time.monotonic_ns()

    def ends(self) -> None:
        """Note that the lane is about to go on."""
        if self._word[0] < 0:
            self._word[0] += time.monotonic_ns()


class LaneClock:
    """The time of the lane that this process is. Units: nanoseconds. Thread: any."""

    def __init__(self) -> None:
        """Be `time.monotonic_ns` until `follow`."""
        self._word: memoryview | array[int] = array("q", [0])
        self._paused_ns = 0

    def follow(self, fd: int) -> None:
        """Read from the lane's file for how long the lane is suspended."""
        self._word = memoryview(mmap.mmap(fd, SIZE, prot=mmap.PROT_READ))[AT:].cast("q")

    def now_ns(self) -> int:
        """Return the lane's time."""
        word = self._word[0]
        return (time.monotonic_ns() - word if word >= 0 else -word) - self._paused_ns

    @property
    def suspended_ns(self) -> int:
        """For how long the lane has been suspended."""
        word = self._word[0]
        return word if word >= 0 else time.monotonic_ns() + word

    @property
    def stopped_ns(self) -> int:
        """For how long it has been suspended and paused."""
        return self.suspended_ns + self._paused_ns

    def stamp(self, at_ns: int) -> int:
        """Return a moment of the lane's time, since which it was not stopped, on the machine's clock."""
        return at_ns + self.stopped_ns

    def pause(self, wait: Callable[[], object]) -> None:
        """Stand still while `wait` runs."""
        began_ns = self.now_ns()
        wait()
        self._paused_ns += self.now_ns() - began_ns


lane_clock = LaneClock()
"""The time of this process's lane."""

"""When the lanes of a long race get fresh processes, so that one pair of processes does not decide the race.

Two equal processes differ in speed as long as they live, by how their memory is laid out, and no number of rounds
averages that out. Only other processes do. The new ones are not forked from one that has loaded TensorFlow: they
would share its memory layout.
"""

from __future__ import annotations

import time
from collections.abc import Callable

FRESH_EVERY_S = 20.0
"""How long processes race before fresh ones replace them. A restart takes about 3 s of no measurement."""
PREPARE_S = 10.0
"""So long before, spare workers are started for them, which load between the rounds."""
PATIENCE_S = 15.0
"""How long fresh processes wait for spare workers that still load."""
LEAST_LEFT_S = 10.0
"""Fresh processes that would race for less than this are not started."""


class Renewal:
    """Tells when the processes of one race are due to be replaced.

    Thread: one at a time; the caller holds the lock of the lanes.
    """

    def __init__(
        self,
        every_s: float | None = None,
        seconds: float | None = None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Renew every `every_s` seconds, never for None, in a race of `seconds`, endless for None."""
        self.every_s = every_s
        self._seconds = seconds
        self._clock_ns = clock_ns
        self._race_since_ns: int | None = None
        self._since_ns: int | None = None

    def due(self, later_s: float = 0.0) -> bool:
        """Return whether the processes will have raced long enough in `later_s`. Called between two rounds."""
        if self.every_s is None:
            return False
        now_ns = self._clock_ns()
        self._race_since_ns = self._race_since_ns or now_ns
        self._since_ns = self._since_ns or now_ns
        then_ns = now_ns + round(later_s * 1e9)
        return then_ns - self._since_ns >= self.every_s * 1e9 and self._left_s(then_ns) >= LEAST_LEFT_S

    def begin(self) -> None:
        """Record that the processes are replaced; the next ones race from the next call of `due` on."""
        self._since_ns = None

    def _left_s(self, then_ns: int) -> float:
        if self._seconds is None:
            return float("inf")
        return self._seconds - (then_ns - (self._race_since_ns or then_ns)) / 1e9

"""Gives back a turn that a lane cannot use, for its script does something else than steps and the others wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tfmon.model.wire import Turn

AFTER_S = 3.0
"""So long after the end of its turn, and after its last step, a lane gives it back."""


class Lending(threading.Thread):
    """Looks once a second whether the turn is to be given back.

    Thread: `given` is the inbox's; `ended` and the `give_back` it was made with hold the lock.
    """

    def __init__(
        self, lock: threading.RLock, last_step_ns: Callable[[], int], give_back: Callable[[Turn], None]
    ) -> None:
        super().__init__(name="tfmon-lend", daemon=True)
        self.last = 0
        """Number of the turn that was given back last: it may not begin any more."""
        self._lock, self._last_step_ns, self._give_back = lock, last_step_ns, give_back
        self._given: tuple[Turn, float] | None = None

    @property
    def turn(self) -> Turn | None:
        """The turn that the lane was given and that has not ended."""
        given = self._given
        return None if given is None else given[0]

    def given(self, turn: Turn) -> None:
        """Take note of a turn that the lane was given."""
        self._given = turn, time.monotonic() + turn.seconds

    def ended(self) -> None:
        """Take note that it is over."""
        self._given = None

    def run(self) -> None:
        """Look for ever."""
        while True:
            time.sleep(AFTER_S / 3)
            self.look()

    def look(self) -> None:
        """Give the turn back if it is long over and no step was trained."""
        given, idle_since = self._given, time.monotonic() - AFTER_S
        if given is None or idle_since < max(given[1], self._last_step_ns() / 1e9):
            return
        with self._lock:
            if self._given is given:
                self._given, self.last = None, given[0].number
                self._give_back(given[0])

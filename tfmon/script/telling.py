"""What a lane that is a user's process says to the monitor."""

from __future__ import annotations

import threading
import time

from tfmon.model.lane_events import FromLane, PhaseEntered
from tfmon.trainer.reporter import Reporter


class Teller:
    """Sends a lane's events, and no more of them once nobody listens.

    Thread: any; who holds `lock` is not interrupted by what another thread tells.
    """

    def __init__(self, fd: int) -> None:
        self.lock = threading.RLock()
        self.gone = False
        """True when the monitor listens no longer, or this process is the lane no longer."""
        self._reporter = Reporter(fd, end=self._unheard)

    def send(self, event: FromLane) -> None:
        """Send an event that must arrive."""
        if not self.gone:
            with self.lock:
                self._reporter.send(event)

    def offer(self, event: FromLane) -> bool:
        """Send an event if the pipe has room for it; return whether it went."""
        if self.gone:
            return False
        with self.lock:
            return self._reporter.offer(event)

    def enter(self, phase: str) -> None:
        """Tell that the lane goes on to another part of its life."""
        self.send(PhaseEntered(at_ns=time.monotonic_ns(), phase=phase))

    def leave(self) -> None:
        """Wait until all is sent, for a second at most, and be silent from then on."""
        with self.lock:
            if not self.gone:
                self._reporter.drain(timeout_s=1.0)
            self.gone = True

    def forget(self) -> None:
        """Be silent in a forked child, where the lock may be held by a thread that does not exist."""
        self.lock, self.gone = threading.RLock(), True

    def _unheard(self, _code: int) -> None:
        self.gone = True

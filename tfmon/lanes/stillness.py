"""Times in which tfmon is stopped or the machine sleeps: the lanes stop too, and no figure holds such a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from tfmon.lanes.process import LaneProcess


class Stillness:
    """Stops the children along with tfmon, and knows how long everything stood still.

    Thread: `stop_lanes` and `let_go_on` may run in a signal's handler; the rest may be called from any thread.
    """

    def __init__(
        self,
        children: Callable[[], Iterable[LaneProcess]],
        tell: Callable[[int, int, float], None],
    ) -> None:
        """Look after children; `tell` is called with the stamps of a gap and how many seconds it lasted."""
        self._children = children
        self._tell = tell
        self._lock = threading.Lock()
        self._since_ns: int | None = None
        self._known_until_ns = 0
        self._total_ns = 0

    def stop_lanes(self) -> None:
        """Stop every lane where it is: tfmon is about to be stopped itself."""
        self._since_ns = time.monotonic_ns()
        for child in list(self._children()):
            child.suspend()

    def let_go_on(self) -> None:
        """Let those lanes go on that `stop_lanes` stopped."""
        since_ns, self._since_ns = self._since_ns, None
        for child in list(self._children()):
            child.resume()
        if since_ns is not None:
            until_ns = time.monotonic_ns()
            gap = (since_ns, until_ns, (until_ns - since_ns) / 1e9)
            # What takes a lock is not done in a signal's handler: it may have interrupted the lock's owner.
            threading.Thread(target=self.note_gap, args=gap, name="tfmon-gap", daemon=True).start()

    def note_gap(self, since_ns: int, until_ns: int, lasted_s: float) -> None:
        """Note that everything stood still, unless that is known already."""
        with self._lock:
            if since_ns < self._known_until_ns:
                return
            self._known_until_ns, self._total_ns = until_ns, self._total_ns + until_ns - since_ns
        self._tell(since_ns, until_ns, lasted_s)

    def call_after(self, seconds: float, work: Callable[[], None]) -> None:
        """Do something after so many seconds in which nothing stood still, in a thread of its own."""
        before_ns = self._total_ns

        def ring() -> None:
            more_ns = self._total_ns - before_ns
            if more_ns:
                self.call_after(more_ns / 1e9, work)
            else:
                work()

        timer = threading.Timer(seconds, ring)
        timer.daemon = True
        timer.start()

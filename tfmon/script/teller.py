"""What a lane that is a user's process says to the monitor."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

from tfmon.model.lane_events import FromLane, PhaseEntered, StackReported
from tfmon.model.wire import RunSlice
from tfmon.trainer.channel import Reporter


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


# ---------------- where the threads of a script stand, told on request


MOST_THREADS, MOST_FRAMES, MOST_LINES, MOST_CHARACTERS = 20, 100, 200, 160
"""What is told at most: threads, frames of each, lines, characters of a line. It must fit a line of the pipe."""
OWN = "tfmon-"
"""How the names of tfmon's own threads begin."""


def stacks(main: int) -> StackReported:
    """Return where each thread stands, that of the number `main` first, in the form that `faulthandler` writes."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames()
    lines: list[str] = []
    for ident in sorted(frames, key=lambda ident: ident != main)[:MOST_THREADS]:
        name = names.get(ident, "")
        if name.startswith(OWN):
            continue
        lines.append(f"Thread 0x{ident:016x} [{name}] (most recent call first):")
        lines.extend(_calls(frames[ident]))
    return StackReported(
        at_ns=time.monotonic_ns(), lines=tuple(line[:MOST_CHARACTERS] for line in lines[:MOST_LINES])
    )


def _calls(frame: FrameType | None) -> Iterator[str]:
    for _ in range(MOST_FRAMES):
        if frame is None:
            return
        code = frame.f_code
        yield f'  File "{code.co_filename}", line {frame.f_lineno} in {code.co_name}'
        frame = frame.f_back
    if frame is not None:
        yield "  ..."


# ---------------- gives back a turn that a lane cannot use, for its script does something else than steps and the others wait


AFTER_S = 3.0
"""So long after the end of its turn, and after its last step, a lane gives it back."""


class Lending(threading.Thread):
    """Looks once a second whether the turn is to be given back.

    Thread: `given` is the inbox's; `ended` and the `give_back` it was made with hold the lock.
    """

    def __init__(
        self, lock: threading.RLock, last_step_ns: Callable[[], int], give_back: Callable[[RunSlice], None]
    ) -> None:
        super().__init__(name="tfmon-lend", daemon=True)
        self.last = 0
        """Number of the turn that was given back last: it may not begin any more."""
        self._lock, self._last_step_ns, self._give_back = lock, last_step_ns, give_back
        self._given: tuple[RunSlice, float] | None = None

    @property
    def current(self) -> RunSlice | None:
        """The turn that the lane was given and that has not ended."""
        given = self._given
        return None if given is None else given[0]

    def given(self, given: RunSlice) -> None:
        """Take note of a turn that the lane was given."""
        self._given = given, time.monotonic() + given.seconds

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
                self._given, self.last = None, given[0].round
                self._give_back(given[0])

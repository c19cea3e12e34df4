"""The sampling thread: runs one probe at even intervals and passes its readings on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tfmon.model.events import Event
from tfmon.model.threads import start_thread
from tfmon.probes.base import Probe

Wait = Callable[[threading.Condition, float], object]
"""Waits on a locked condition, for a number of seconds at most."""


@dataclass(frozen=True, slots=True)
class TickerStatus:
    """How the sampling itself goes; updated at the end of every tick."""

    ticks: int = 0
    cost_ns: int = 0
    """CPU time of all ticks."""


class Ticker:
    """Runs a probe in a daemon thread of its own.

    Ticks are due at fixed times, however long the previous ones took. Those that are missed, because the machine
    sleeps or a sample takes too long, are not made up for. The thread survives any error of the probe, whose
    readings are then missing, and of the sink.
    Thread: every method may be called from any thread; none waits for the probe, except `close`, briefly.
    """

    def __init__(
        self,
        probe: Probe,
        sink: Callable[[Event], object],
        *,
        interval_s: float = 1.0,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        wait: Wait = threading.Condition.wait,
    ) -> None:
        """Prepare a thread that samples `probe`.

        Args:
            sink: Called with every event, in the thread of the ticker.
            wait: Waits for the next tick; a test passes one that follows its own clock.
        """
        self.probe = probe
        self.status = TickerStatus()
        self._sink = sink
        self._clock_ns = clock_ns
        self._wait = wait
        self._changed = threading.Condition()
        self._interval_ns = max(1, int(interval_s * 1e9))
        self._due_ns = 0
        self._closed = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread; the first tick is due at once."""
        self._due_ns = self._clock_ns()
        self._thread = start_thread(f"tfmon-{self.probe.name}", self._run, self._tell_missing)

    def close(self, timeout_s: float = 0.25) -> bool:
        """End the thread, which closes the probe. Return False if it hangs in the driver and is left alone."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while self._await_tick():
            self._tick()
        self._guard(self.probe.close)

    def _await_tick(self) -> bool:
        """Wait for the next tick; return False once closed."""
        with self._changed:
            while not self._closed:
                left_ns = self._due_ns - self._clock_ns()
                if left_ns > 0:
                    self._wait(self._changed, left_ns / 1e9)
                else:
                    self._due_ns += self._interval_ns
                    self._skip_missed()
                    return True
            return False

    def _skip_missed(self) -> None:
        """Set the next tick to the first planned time that is still to come."""
        behind_ns = self._clock_ns() - self._due_ns
        if behind_ns >= 0:
            self._due_ns += (behind_ns // self._interval_ns + 1) * self._interval_ns

    def _tick(self) -> None:
        begun_cpu_ns = time.thread_time_ns()
        error = self._guard(lambda: self._pass_on(self.probe.sample))
        if error:
            self._tell_missing(f"the {self.probe.name} readings failed: {error}")
        cost_ns = time.thread_time_ns() - begun_cpu_ns
        self._skip_missed()
        self.status = TickerStatus(self.status.ticks + 1, self.status.cost_ns + cost_ns)

    def _tell_missing(self, reason: str) -> None:
        self._guard(lambda: self._pass_on(lambda: self.probe.missing(reason)))

    def _pass_on(self, read: Callable[[], Iterable[Event]]) -> None:
        for event in read():
            if self._closed:
                return
            self._sink(event)

    def _guard(self, work: Callable[[], None]) -> str:
        """Do some work and return its error in one line, or "": no error may end the thread."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - top of a thread; the error is passed on as a reading
            return " ".join(f"{type(error).__name__}: {error}".split())[:200]
        return ""

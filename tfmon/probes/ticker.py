"""The sampling thread: runs one probe at even intervals and passes on what it reads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from tfmon.model.events import Event
from tfmon.probes.base import Probe

Wait = Callable[[threading.Condition, float], object]
"""Waits on a condition that is held, at most so many seconds."""


@dataclass(frozen=True, slots=True)
class Beat:
    """How the sampling itself goes."""

    ticks: int = 0
    skipped: int = 0
    """Ticks left out because the machine slept or a sample took too long; they are not made up for."""
    lateness_ns: int = 0
    """How much later than planned the last tick began."""
    took_ns: int = 0
    """Wall time of the last tick."""
    last_cost_ns: int = 0
    """CPU time of the last tick."""
    cost_ns: int = 0
    """CPU time of all ticks."""
    sampling_since_ns: int | None = None
    """When the tick that is under way began; None between ticks. Long ago means that the driver hangs."""
    problem: str = ""
    """Why the last tick failed; empty if it did not."""


class Ticker:
    """Runs a probe in a daemon thread of its own.

    A tick is due at fixed times, whatever the ones before took. The thread goes on after any error of the
    probe, whose readings are then missing, and of the sink.
    Thread: every method may be called from any thread, and none waits for the probe except `close`, briefly.
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
        self.probe = probe
        self._sink = sink
        self._clock_ns = clock_ns
        self._wait = wait
        self._changed = threading.Condition()
        self._interval_ns = max(1, int(interval_s * 1e9))
        self._due_ns = 0
        self._paused = False
        self._closed = False
        self._ready = False
        self._beat = Beat()
        self._thread = threading.Thread(target=self._run, name=f"tfmon-{probe.name}", daemon=True)

    @property
    def beat(self) -> Beat:
        """How the sampling goes, now."""
        return self._beat

    def start(self) -> None:
        """Begin; the first tick is due at once."""
        self._due_ns = self._clock_ns()
        self._thread.start()

    def close(self, timeout_s: float = 0.25) -> bool:
        """End the thread; False if it still hangs in the driver, where it is left alone.

        The probe is closed by its own thread.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.ident is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def pause(self) -> None:
        """Take no samples until `resume`."""
        with self._changed:
            self._paused = True
            self._changed.notify_all()

    def resume(self) -> None:
        """Go on with a tick at once."""
        with self._changed:
            if self._paused:
                self._paused = False
                self._due_ns = self._clock_ns()
                self._changed.notify_all()

    def set_interval(self, interval_s: float) -> None:
        """Sample at another interval, counted from now."""
        with self._changed:
            self._interval_ns = max(1, int(interval_s * 1e9))
            self._due_ns = self._clock_ns() + self._interval_ns
            self._changed.notify_all()

    # ------------------------------------------------------------ in the thread

    def _run(self) -> None:
        while (due_ns := self._await_tick()) is not None:
            self._tick(due_ns)
        self._guard(self._probe_close)

    def _await_tick(self) -> int | None:
        """Wait for the next tick and return when it was due, or None once closed."""
        with self._changed:
            while not self._closed:
                left_ns = self._due_ns - self._clock_ns()
                if self._paused:
                    self._wait(self._changed, threading.TIMEOUT_MAX)
                elif left_ns > 0:
                    self._wait(self._changed, left_ns / 1e9)
                else:
                    due_ns = self._due_ns
                    self._due_ns += self._interval_ns
                    self._skip_missed()
                    return due_ns
            return None

    def _skip_missed(self) -> None:
        """Put the next tick on the first planned time that is still to come."""
        behind_ns = self._clock_ns() - self._due_ns
        if behind_ns >= 0:
            missed = behind_ns // self._interval_ns + 1
            self._due_ns += missed * self._interval_ns
            self._beat = replace(self._beat, skipped=self._beat.skipped + missed)

    def _tick(self, due_ns: int) -> None:
        begun_ns, begun_cpu_ns = self._clock_ns(), time.thread_time_ns()
        self._beat = replace(self._beat, lateness_ns=begun_ns - due_ns, sampling_since_ns=begun_ns)
        problem = self._guard(self._sample)
        if problem:
            reason = f"the {self.probe.name} readings failed: {problem}"
            self._guard(lambda: self._pass_missing(reason))
        cost_ns = time.thread_time_ns() - begun_cpu_ns
        self._beat = replace(
            self._beat,
            ticks=self._beat.ticks + 1,
            took_ns=self._clock_ns() - begun_ns,
            last_cost_ns=cost_ns,
            cost_ns=self._beat.cost_ns + cost_ns,
            sampling_since_ns=None,
            problem=problem,
        )
        with self._changed:
            self._skip_missed()

    def _sample(self) -> None:
        if not self._ready:
            self.probe.start()
            self._ready = True
        for event in self.probe.sample():
            if self._closed:
                return
            self._sink(event)

    def _pass_missing(self, reason: str) -> None:
        for event in self.probe.missing(reason):
            self._sink(event)

    def _probe_close(self) -> None:
        if self._ready:
            self.probe.close()

    def _guard(self, work: Callable[[], None]) -> str:
        """Do some work and return what went wrong, in one line: nothing may end the thread."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - top of a thread; what went wrong is passed on as a reading
            return " ".join(f"{type(error).__name__}: {error}".split())[:200]
        return ""

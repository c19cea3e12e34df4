"""Reads and reaps processes."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import threading
import time
from collections.abc import Callable, Sequence

from tfmon.lanes.lane_process import LaneProcess, LocalProcess
from tfmon.lanes.launch import ASK_S, KILL_S, TERM_S
from tfmon.system.threads import Failed, start_thread

REAP_EVERY_S = 0.5
"""Some processes end without closing their pipes."""
REAP_SOON_S = 0.01


class PipeReader:
    """One thread for all processes. Thread: any."""

    def __init__(self, failed: Failed) -> None:
        self._failed = failed
        self._thread: threading.Thread | None = None
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        self._selector.register(self._wake_read, selectors.EVENT_READ, lambda fd: os.read(fd, 4096))
        self._new: list[LocalProcess] = []
        self._processes: list[LocalProcess] = []
        self._reap_at_s = 0.0
        self._closing = False
        self._closed = False
        self._change = threading.Condition()
        self._hurries = 0

    def watch(self, process: LocalProcess) -> None:
        """Read a process until it has ended."""
        with self._change:
            self._new.append(process)
            if self._thread is None:
                self._thread = start_thread("tfmon-reader", self._run, self._failed)
        self._wake()

    def end(self, processes: Sequence[LaneProcess]) -> None:
        """End processes by a request, SIGTERM and SIGKILL."""
        graces_s = [process.grace_s for process in processes if process.grace_s is not None]
        hurries = self._hurries
        for process in processes:
            process.request_end()
        if self.wait_ended(processes, max(graces_s, default=ASK_S), lambda: self._hurries > hurries):
            return
        for number, patience_s in ((signal.SIGTERM, TERM_S), (signal.SIGKILL, KILL_S)):
            for process in processes:
                if not process.ended:
                    process.kill(number)
            if self.wait_ended(processes, patience_s):
                return

    def hurry(self) -> None:
        """End user's commands by SIGTERM and SIGKILL now."""
        self._hurries += 1
        self.note_end()

    def wait_ended(
        self,
        processes: Sequence[LaneProcess],
        timeout_s: float,
        given_up: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Wait until all are reaped or `given_up`."""
        deadline = time.monotonic() + timeout_s
        with self._change:
            while running := [process for process in processes if not self._has_ended(process)]:
                left_s = deadline - time.monotonic()
                if left_s <= 0 or given_up():
                    break
                self._change.wait(min(left_s, REAP_EVERY_S))
            return not running

    def _has_ended(self, process: LaneProcess) -> bool:
        """The thread that reaps may have died."""
        dead = self._thread is not None and not self._thread.is_alive()
        if process.ended or not dead or not isinstance(process, LocalProcess):
            return process.ended
        ended = process.poll()
        if ended:
            process.kill(signal.SIGKILL)
        return ended

    def note_end(self) -> None:
        """Wake the waiters for ends."""
        with self._change:
            self._change.notify_all()

    def close(self) -> None:
        """End the thread once no process is left."""
        self._closing = True
        self._wake()

    def _run(self) -> None:
        while not (self._closing and not self._processes and not self._new):
            with self._change:
                new, self._new = self._new, []
            for process in new:
                self._processes.append(process)
                for fd in process.open:
                    self._selector.register(fd, selectors.EVENT_READ, process.read)
            soon = any(process.ends_soon for process in self._processes)
            for key, _ in self._selector.select(REAP_SOON_S if soon else REAP_EVERY_S):
                read: Callable[[int], object] = key.data
                read(key.fd)
            closed = any(process.open != process.fds for process in self._processes)
            if soon or closed or time.monotonic() >= self._reap_at_s:
                self._reap_at_s = time.monotonic() + REAP_EVERY_S
                self._reap_ended()
        with self._change:
            self._closed = True
            self._selector.close()
            os.close(self._wake_read)
            os.close(self._wake_write)

    def _reap_ended(self) -> None:
        for process in list(self._processes):
            ended = process.poll()
            for fd in process.fds:
                if ended or fd not in process.open:
                    with contextlib.suppress(KeyError, ValueError):
                        self._selector.unregister(fd)
            process.look(ended=ended)
            if ended:
                self._processes.remove(process)
                self.note_end()

    def _wake(self) -> None:
        with self._change, contextlib.suppress(BlockingIOError):
            if not self._closed:
                os.write(self._wake_write, b"!")

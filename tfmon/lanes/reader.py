"""One thread that reads all pipes of all children and reaps them."""

from __future__ import annotations

import contextlib
import os
import selectors
import threading
from collections.abc import Callable, Sequence

from tfmon.lanes.process import LaneProcess

REAP_EVERY_S = 0.25
"""How often children are looked after that ended without closing their pipes."""
REAP_SOON_S = 0.01
"""The same while a child has closed its metric pipe and is about to end."""


class PipeReader(threading.Thread):
    """Reads and reaps. A child that floods its pipes gets one chunk a round, like every other.

    Thread: `watch` and `close` may be called from any thread.
    """

    def __init__(self) -> None:
        super().__init__(name="tfmon-pump", daemon=True)
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._drain_wakes)
        self._new: list[LaneProcess] = []
        self._children: list[LaneProcess] = []
        self._closed = False
        self._gone = False
        self._change = threading.Condition()

    def watch(self, child: LaneProcess) -> None:
        """Read this child from now on, until it has ended."""
        with self._change:
            self._new.append(child)
        self._wake()

    def wait_ended(self, children: Sequence[LaneProcess], timeout_s: float) -> bool:
        """Wait until all these children are reaped, at most so long; return whether they are."""
        with self._change:
            return self._change.wait_for(lambda: all(child.ended for child in children), timeout_s)

    def close(self) -> None:
        """End the thread once no child is left."""
        self._closed = True
        self._wake()

    def run(self) -> None:
        """Read until closed and childless."""
        while not (self._closed and not self._children and not self._new):
            self._adopt()
            soon = any(not child.metrics_open for child in self._children)
            for key, _ in self._selector.select(REAP_SOON_S if soon else REAP_EVERY_S):
                read: Callable[[], object] = key.data
                read()
            self._look_after()
        self._let_go()

    def _adopt(self) -> None:
        with self._change:
            new, self._new = self._new, []
        for child in new:
            self._children.append(child)
            self._selector.register(child.metric_fd, selectors.EVENT_READ, child.read_metrics)
            self._selector.register(child.output_fd, selectors.EVENT_READ, child.read_output)

    def _look_after(self) -> None:
        for child in list(self._children):
            child.tell_output()
            ended = child.poll()
            if ended or not child.metrics_open:
                self._forget(child.metric_fd)
            if ended or not child.output_open:
                self._forget(child.output_fd)
            if not ended:
                continue
            child.reap()
            self._children.remove(child)
            with self._change:
                self._change.notify_all()

    def _forget(self, fd: int) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(fd)

    def _drain_wakes(self) -> None:
        os.read(self._wake_read, 4096)

    def _wake(self) -> None:
        with self._change, contextlib.suppress(BlockingIOError):
            if not self._gone:
                os.write(self._wake_write, b"!")

    def _let_go(self) -> None:
        with self._change:
            self._gone = True
            self._selector.close()
            os.close(self._wake_read)
            os.close(self._wake_write)

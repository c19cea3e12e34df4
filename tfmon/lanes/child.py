"""A started process with its pipes: read in chunks, written to, signalled and reaped. It decodes nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable

from tfmon.lanes.launch import Launched

CHUNK_BYTES = 65_536
LAST_CHUNKS = 32
"""Most that is read of a pipe after the process has ended: more than a pipe holds, so nothing is lost."""


class Child:
    """A child of this process, which is the monitor or an agent.

    Thread: `read`, `poll` and `_reap` one; the rest any.
    """

    def __init__(
        self,
        launched: Launched,
        take_metrics: Callable[[bytes], object],
        take_output: Callable[[bytes], object],
    ) -> None:
        """Take over a process that was started; the rest takes the chunks of its two pipes."""
        self._popen, self._guard = launched.popen, launched.guard
        self.metric_fd, self.output_fd = launched.metric_fd, launched.output_fd
        self._request_fd = launched.request_fd
        self._takers = {self.metric_fd: take_metrics, self.output_fd: take_output}
        self.open = {self.metric_fd, self.output_fd}
        """The pipes whose other end the child has not closed."""
        self.pid = self._popen.pid
        self._gate = threading.Lock()
        self._closed = False
        """True once descriptors and pid may belong to somebody else: nothing must be sent to them any more."""
        self._reads = True
        """False once the end of its request pipe was closed."""

    # ---------------------------------------------------------------- to the child

    def write(self, data: bytes) -> bool:
        """Write to the request pipe; return False when the child no longer reads."""
        with self._gate:
            if self._closed or not self._reads:
                return False
            try:
                os.write(self._request_fd, data)
            except OSError:
                return False
            return True

    def _end_requests(self) -> None:
        """Close the request pipe: a child that reads it ends then."""
        with self._gate:
            if self._reads and not self._closed:
                self._reads = False
                os.close(self._request_fd)

    def kill(self, number: int, *, alone: bool = False) -> None:
        """Signal the child and everything it started in its process group, or the child alone."""
        with self._gate:
            self._kill_now(number, alone=alone)

    def _kill_now(self, number: int, *, alone: bool = False) -> None:
        """Do so without the lock. Thread: also a signal's handler."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if not self._closed:
                (os.kill if alone else os.killpg)(self.pid, number)

    # ---------------------------------------------------------------- from the child

    def read(self, fd: int) -> bool:
        """Take one chunk of a pipe; return False when it is empty or has ended."""
        try:
            chunk = os.read(fd, CHUNK_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            chunk = b""
        if chunk:
            self._takers[fd](chunk)
        else:
            self.open.discard(fd)
        return bool(chunk)

    def poll(self) -> bool:
        """Return whether the child has ended."""
        return self._popen.poll() is not None

    def _reap(self) -> int:
        """Reap an ended child: read the rest, end its group, close the pipes. Return its code, as `Popen` does."""
        code = self._popen.wait()
        self.kill(signal.SIGKILL)
        if self._guard is not None:
            self._guard.dismiss()
        for fd in self._takers:
            for _ in range(LAST_CHUNKS):
                if not self.read(fd):
                    break
        self._end_requests()
        with self._gate:
            self._closed = True
            os.close(self.metric_fd)
        assert self._popen.stdout is not None
        self._popen.stdout.close()
        return code

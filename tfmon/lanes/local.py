"""A lane's process on the monitor's own machine: its pipes, its signals and its end."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from pathlib import Path

from tfmon.lanes.launch import BOOTSTRAP, Command, dismiss_guard, launch
from tfmon.lanes.process import LaneProcess, Sink

CHUNK_BYTES = 65_536
LAST_CHUNKS = 32
"""Most that is read of a pipe after the process has ended: more than a pipe holds, so nothing is lost."""


class LocalProcess(LaneProcess):
    """A child of this process.

    Thread: `read_metrics`, `read_output`, `tell_output`, `poll` and `reap` are the reader's; the rest any.
    """

    def __init__(
        self,
        lane: str,
        python: Path,
        environment: dict[str, str | None],
        sink: Sink,
        script: Path = BOOTSTRAP,
        command: Command | None = None,
    ) -> None:
        """Start the process of a lane.

        Args:
            lane: The lane's name; "" for a spare worker.
            python: The interpreter that runs `script`.
            environment: Variables besides the monitor's; None removes one.
            sink: Takes the process and each of its events.
            script: What to run.
            command: A user's command to run instead.

        Raises:
            OSError: It did not start.
        """
        launched = launch(python, environment, script, command)
        super().__init__(lane, sink)
        self._popen, self._guard = launched.popen, launched.guard
        self.metric_fd, self.output_fd = launched.metric_fd, launched.output_fd
        self._request_fd = launched.request_fd
        self.pid = self._popen.pid
        self._gate = threading.Lock()
        self._closed = False
        """True once descriptors and pid may belong to somebody else: nothing must be sent to them any more."""
        self.metrics_open = True
        """False once the child's end of the metric pipe is closed."""
        self.output_open = True

    def _write(self, data: bytes) -> bool:
        with self._gate:
            if self._closed:
                return False
            try:
                os.write(self._request_fd, data)
            except OSError:
                return False
            return True

    def _signal(self, number: signal.Signals, *, alone: bool = False) -> None:
        with self._gate:
            self._signal_now(number, alone=alone)

    def _signal_now(self, number: signal.Signals, *, alone: bool = False) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if not self._closed:
                (os.kill if alone else os.killpg)(self.pid, number)

    def suspend_with_monitor(self) -> None:
        """Stop the child for as long as the monitor is stopped. Thread: also a signal's handler."""
        self._signal_now(signal.SIGSTOP)

    def continue_with_monitor(self) -> None:
        """Continue the child unless it was suspended before. Thread: also a signal's handler."""
        if not self._suspended:
            self._signal_now(signal.SIGCONT)

    # ---------------------------------------------------------------- the reader's side

    def read_metrics(self) -> bool:
        """Read one chunk from the metric pipe; return False when it is empty or has ended."""
        chunk = read_chunk(self.metric_fd)
        if not chunk:
            self.metrics_open = self.metrics_open and chunk is None
            return False
        self._metrics.take(chunk)
        return True

    def read_output(self) -> bool:
        """Read one chunk of what the child printed; return False when there is none or the pipe has ended."""
        chunk = read_chunk(self.output_fd)
        if not chunk:
            self.output_open = self.output_open and chunk is None
            return False
        self._output.take(chunk)
        return True

    def poll(self) -> bool:
        """Return whether the child has ended."""
        return self._popen.poll() is not None

    def reap(self) -> None:
        """Reap an ended child: read the rest, end its group, close the pipes, and tell how it ended."""
        code = self._popen.wait()
        self.kill(signal.SIGKILL)
        if self._guard is not None:
            dismiss_guard(self._guard)
        for read in (self.read_metrics, self.read_output):
            for _ in range(LAST_CHUNKS):
                if not read():
                    break
        with self._gate:
            self._closed = True
            os.close(self.metric_fd)
            os.close(self._request_fd)
        assert self._popen.stdout is not None
        self._popen.stdout.close()
        self._tell_end(code, time.monotonic_ns())


def read_chunk(fd: int) -> bytes | None:
    """Return a chunk, b"" at the end of the pipe, or None when it is empty."""
    try:
        return os.read(fd, CHUNK_BYTES)
    except BlockingIOError:
        return None
    except OSError:
        return b""

"""A lane's process on a host, as the agent has it: its bytes go to the monitor undecoded."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from tfmon.hosts.frames import CHUNK_BYTES, ENDED, Kind, Outbox
from tfmon.lanes.launch import Launched, dismiss_guard

LAST_CHUNKS = 32
"""Most that is read of a pipe after the process has ended: more than a pipe holds, so nothing is lost."""
KEPT_OUTPUT_BYTES = 65_536
"""How much output waits for the link; older output is dropped, so that the process never blocks."""
OUTPUT_EVERY_S = 0.05
"""Output is collected so long: a process that prints much costs few frames."""


class HostedLane:
    """A child of the agent. Thread: the agent's loop."""

    def __init__(self, number: int, name: str, launched: Launched, outbox: Outbox) -> None:
        self.number, self.name = number, name
        self._outbox = outbox
        self._popen, self._guard = launched.popen, launched.guard
        self.pid = self._popen.pid
        self.metric_fd, self.output_fd = launched.metric_fd, launched.output_fd
        self._request_fd = launched.request_fd
        self._suspended = False
        self._output = bytearray()
        self._dropped = 0
        self._output_sent_s = 0.0
        self.metrics_open = self.output_open = True
        """False once the child's end of the pipe is closed."""
        self.ended = False

    # ---------------------------------------------------------------- from the monitor

    def write(self, data: bytes) -> None:
        """Write to the request pipe; a child that does not read misses it."""
        with contextlib.suppress(OSError):
            os.write(self._request_fd, data)

    def signal(self, number: int, *, alone: bool = False) -> None:
        """Signal the group of the child, or the child alone, and remember whether it is suspended."""
        if number == signal.SIGSTOP:
            self._suspended = True
        elif number == signal.SIGCONT:
            self._suspended = False
        self._send_signal(number, alone=alone)

    def hold(self) -> None:
        """Suspend the child until `go_on`, which leaves it as it was."""
        self._send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """End `hold`."""
        if not self._suspended:
            self._send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Have the child end soon: nobody listens any more."""
        if self._request_fd >= 0:
            os.close(self._request_fd)
            self._request_fd = -1
        self._send_signal(signal.SIGCONT)
        self._send_signal(signal.SIGTERM)

    def _send_signal(self, number: int, *, alone: bool = False) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if not self.ended:
                (os.kill if alone else os.killpg)(self.pid, number)

    # ---------------------------------------------------------------- to the monitor

    def read_metrics(self) -> bool:
        """Pass on one chunk of the metric pipe; return False when it is empty or has ended."""
        chunk = _read(self.metric_fd)
        if not chunk:
            self.metrics_open = self.metrics_open and chunk is None
            return False
        self._outbox.put(Kind.METRICS, self.number, chunk)
        return True

    def read_output(self) -> bool:
        """Collect one chunk of what the child printed; return False when there is none or the pipe has ended."""
        chunk = _read(self.output_fd)
        if not chunk:
            self.output_open = self.output_open and chunk is None
            return False
        self._output += chunk
        too_many = len(self._output) - KEPT_OUTPUT_BYTES
        if too_many > 0:
            del self._output[:too_many]
            self._dropped += too_many
        return True

    @property
    def output_due_s(self) -> float | None:
        """When the output is due to be passed on; None where there is none."""
        return self._output_sent_s + OUTPUT_EVERY_S if self._output else None

    def pass_output(self) -> None:
        """Pass on what the child printed."""
        if self._dropped:
            self._outbox.put(Kind.DROPPED, self.number, str(self._dropped).encode())
        if self._output:
            self._outbox.put(Kind.OUTPUT, self.number, bytes(self._output))
        self._output.clear()
        self._dropped, self._output_sent_s = 0, time.monotonic()

    def poll(self) -> bool:
        """Return whether the child has ended."""
        return self._popen.poll() is not None

    def reap(self) -> None:
        """Reap an ended child: read the rest, end its group, close the pipes, and pass on how it ended."""
        code = self._popen.wait()
        at_ns = time.monotonic_ns()
        self._send_signal(signal.SIGKILL)
        self.ended = True
        if self._guard is not None:
            dismiss_guard(self._guard)
        for read in (self.read_metrics, self.read_output):
            for _ in range(LAST_CHUNKS):
                if not read():
                    break
        self.pass_output()
        os.close(self.metric_fd)
        if self._request_fd >= 0:
            os.close(self._request_fd)
        assert self._popen.stdout is not None
        self._popen.stdout.close()
        self._outbox.put(Kind.ENDED, self.number, ENDED.pack(code, at_ns))

    def kill(self) -> None:
        """Kill the child and its group."""
        self._send_signal(signal.SIGKILL)


def _read(fd: int) -> bytes | None:
    """Return a chunk, b"" at the end of the pipe, or None when it is empty."""
    try:
        return os.read(fd, CHUNK_BYTES)
    except BlockingIOError:
        return None
    except OSError:
        return b""

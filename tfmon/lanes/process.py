"""One process of a lane: sends it requests and signals, reads what it writes, and reaps it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from tfmon.lanes.launch import BOOTSTRAP, Command, dismiss_guard, launch
from tfmon.lanes.pipes import ChildOutput, MetricLines
from tfmon.model.codec import encode_message
from tfmon.model.events import Event, LaneEnded
from tfmon.model.lane_log import without_profiles
from tfmon.model.requests import Request

CHUNK_BYTES = 65_536
LAST_CHUNKS = 32
"""Most that is read of a pipe after the process has ended: more than a pipe holds, so nothing is lost."""
STACK_SIGNAL = signal.SIGUSR1
STACK_PATIENCE_S = 15.0
"""How long the stacks may take: a suspended process writes them in its next slice."""
STACK_POLL_S = 0.05


class LaneProcess:
    """A child in its own process group, with its metric, request and output pipes.

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
        self.lane = lane
        self._sink = sink
        self._popen, self._guard = launched.popen, launched.guard
        self.metric_fd, self.output_fd = launched.metric_fd, launched.output_fd
        self._request_fd = launched.request_fd
        self.pid = self._popen.pid
        self._metrics = MetricLines(lane, self._tell)
        self._output = ChildOutput(lane)
        self._suspended = False
        self._end_requested = False
        self._gate = threading.Lock()
        self._closed = False
        """True once descriptors and pid may belong to somebody else: nothing must be sent to them any more."""
        self.metrics_open = True
        """False once the child's end of the metric pipe is closed."""
        self.output_open = True
        self.ended = False
        """True once the child is reaped, everything it wrote is read, and its end is told."""

    def assign(self, lane: str) -> None:
        """Make a spare worker the process of a lane."""
        self.lane = self._metrics.lane = self._output.lane = lane

    def send(self, request: Request) -> bool:
        """Send a request; return False when the child no longer reads."""
        with self._gate:
            if self._closed:
                return False
            try:
                os.write(self._request_fd, encode_message(request))
            except OSError:
                return False
            return True

    def expect_end(self) -> None:
        """Record that the child is told to end, so that its end is no failure."""
        self._end_requested = True

    def suspend(self) -> None:
        """Stop the child and its threads where they are: it uses no CPU, and its pipeline gets no further."""
        self._suspended = True
        self.kill(signal.SIGSTOP)

    def continue_(self) -> None:
        """Continue a suspended child; one that is not suspended does not notice."""
        self._suspended = False
        self.kill(signal.SIGCONT)

    def suspend_with_monitor(self) -> None:
        """Stop the child for as long as the monitor is stopped. Thread: also a signal's handler."""
        self._signal_group(signal.SIGSTOP)

    def continue_with_monitor(self) -> None:
        """Continue the child unless it was suspended before. Thread: also a signal's handler."""
        if not self._suspended:
            self._signal_group(signal.SIGCONT)

    def kill(self, number: signal.Signals) -> None:
        """Signal the child and everything it started in its process group, unless it is reaped."""
        with self._gate:
            self._signal_group(number)

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if not self._closed:
                os.killpg(self.pid, number)

    def read_stacks(self) -> tuple[str, ...]:
        """Have the child write the stacks of its threads, which works even while it hangs; return their lines.

        Returns nothing when it does not answer. Only for a lane that `reports_stack`: others would end.
        Thread: any; it waits.
        """
        before = self._output.printed_bytes
        with self._gate, contextlib.suppress(ProcessLookupError, PermissionError):
            if not self._closed:
                os.kill(self.pid, STACK_SIGNAL)
        deadline = time.monotonic() + STACK_PATIENCE_S
        lines: tuple[str, ...] = ()
        while time.monotonic() < deadline and not self.ended:
            time.sleep(STACK_POLL_S)
            found = self._output.stack_since(before)
            if found and found == lines:  # nothing more came
                return found
            lines = found
        return ()

    # ---------------------------------------------------------------- the reader's side

    def read_metrics(self) -> bool:
        """Read one chunk from the metric pipe; return False when it is empty or has ended."""
        chunk = _read(self.metric_fd)
        if not chunk:
            self.metrics_open = self.metrics_open and chunk is None
            return False
        self._metrics.take(chunk)
        return True

    def read_output(self) -> bool:
        """Read one chunk of what the child printed; return False when there is none or the pipe has ended."""
        chunk = _read(self.output_fd)
        if not chunk:
            self.output_open = self.output_open and chunk is None
            return False
        self._output.take(chunk)
        return True

    def tell_output(self, *, last: bool = False) -> None:
        """Tell what the child printed, a few times a second at most."""
        news = self._output.news(time.monotonic_ns(), last=last)
        if news is not None:
            self._tell(news)

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
        self._metrics.end()
        with self._gate:
            self._closed = True
            os.close(self.metric_fd)
            os.close(self._request_fd)
        assert self._popen.stdout is not None
        self._popen.stdout.close()
        self.tell_output(last=True)
        self._tell(
            LaneEnded(
                lane=self.lane,
                at_ns=time.monotonic_ns(),
                exit_code=code if code >= 0 else None,
                signal=_signal_name(-code) if code < 0 else None,
                requested=self._end_requested,
                output_tail=tuple(without_profiles(self._output.tail())),
            )
        )
        # Last: whoever waits for the end of all lanes reads next how they ended.
        self.ended = True

    def _tell(self, event: Event) -> None:
        self._sink(self, event)


Sink: TypeAlias = Callable[[LaneProcess, Event], None]


def _read(fd: int) -> bytes | None:
    """Return a chunk, b"" at the end of the pipe, or None when it is empty."""
    try:
        return os.read(fd, CHUNK_BYTES)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

"""The process of a lane on any machine."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeAlias

from tfmon.lanes import script_input
from tfmon.lanes.child_output import ChildOutput
from tfmon.lanes.launch import ASK_S, KILL_S, TERM_S, ProcessPlan, launch
from tfmon.model.codec import CodecError, clean, decode_event, encode_message
from tfmon.model.event_base import Event
from tfmon.model.events import BadLine, LaneEnded
from tfmon.model.lane_events import CHANNEL_CLOSED, NotMeasured, StackReported
from tfmon.model.lane_texts import signal_name, without_chatter
from tfmon.model.requests import ReportStack, Request, Stop
from tfmon.system.threads import Failed, start_thread

STACK_SIGNAL = signal.SIGUSR1
STACK_PATIENCE_S = 15.0
STACK_POLL_S = 0.05
"""After this time without output the stacks are complete."""
CHUNK_BYTES = 65_536
MAX_LINE_BYTES = 65_536
AHEAD_NS = 1_000_000_000
"""All processes of a machine share one clock."""
MOST_PROBLEMS = 8
LAST_CHUNKS = 32
REAP_EVERY_S, REAP_SOON_S = 0.5, 0.01
"""Some processes end without closing their pipes."""
ENDS_WITHIN_S = 2.0
"""A process that still runs this long after closing its metric pipe continues to train."""
LOOK_S = 0.1
STOPPED = "a signal such as SIGSTOP or SIGTTIN, or a debugger, has stopped it; kill -CONT {} lets it go on"


class LaneProcess(ABC):
    """A child in its own process group. Thread: any."""

    pid: int

    def __init__(self, lane: str, sink: Sink, grace_s: float | None) -> None:
        """`grace_s` is `None` for a process that ends at a request."""
        self.lane = lane
        self.grace_s = grace_s
        self._tell: Callable[[Event], None] = partial(sink, self)
        self.end_requested = False
        self.over = threading.Event()

    @property
    def ended(self) -> bool:
        """Whether the process has ended, and its end is reported."""
        return self.over.is_set()

    def has_ended(self) -> bool:
        """Return whether the process has ended, even if its end is not reported."""
        return self.ended

    @abstractmethod
    def send(self, request: Request) -> bool:
        """Send a request; return False if nobody reads."""

    @abstractmethod
    def kill(self, number: int) -> None:
        """Signal the process group, unless it is reaped."""

    @abstractmethod
    def suspend(self) -> None:
        """Stop the child."""

    @abstractmethod
    def continue_(self) -> None:
        """Continue the child if `suspend` stopped it, not somebody else."""

    @abstractmethod
    def request_end(self) -> None:
        """Request the end, or send SIGINT to a user's command."""

    @abstractmethod
    def ask_stacks(self) -> None:
        """Report the stacks as an event. Only for a lane that `reports_stack`: the signal ends others."""

    def tell_input(self, reason: str) -> None:
        """Report why the child's standard input is incomplete."""
        self._tell(NotMeasured(lane=self.lane, what="stdin", reason=reason))


Sink: TypeAlias = Callable[[LaneProcess, Event], None]
Echo: TypeAlias = Callable[[bytes], object] | None


class Place(Protocol):
    """Another machine with lanes."""

    def ensure(self) -> None:
        """Connect if necessary; may block for seconds; raises TfmonError."""

    def start_lane(self, plan: ProcessPlan, sink: Sink, echo: Echo) -> LaneProcess:
        """Start a lane, whose output `echo` gets; raises OSError, or TfmonError if the host is lost."""

    def hold(self) -> None:
        """Stop its lanes while tfmon is stopped. Thread: also a signal's handler."""

    def go_on(self) -> None:
        """Continue its lanes, except suspended ones. Thread: also a signal's handler."""


class MetricLines:
    """Decodes the chunks of a metric pipe. Thread: the reader's."""

    def __init__(self, lane: str, sink: Callable[[Event], None]) -> None:
        self.lane = lane
        self._sink = sink
        self._partial = b""
        self._skipping = False
        self._problems: list[tuple[str, int]] = []

    def take(self, chunk: bytes) -> None:
        """Decode the complete lines; keep the rest for the next chunk."""
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        if lines and self._skipping:
            self._skipping = False
            del lines[0]
        for line in lines:
            try:
                event = decode_event(line, self.lane)
            except CodecError as error:
                self._count(str(error))
                continue
            if event.at_ns > time.monotonic_ns() + AHEAD_NS:
                self._count(f"{type(event).__name__}.at_ns lies in the future")
                continue
            self._tell_problems()
            try:
                self._sink(event)
            except Exception as error:  # noqa: BLE001 - one thread reads all lanes; one event must not end it
                self._count(f"tfmon could not take in a {type(event).__name__}: {type(error).__name__}: {error}")
        if len(self._partial) > MAX_LINE_BYTES:
            if not self._skipping:
                self._count(f"a line longer than {MAX_LINE_BYTES} bytes")
            self._partial, self._skipping = b"", True
        self._tell_problems()

    def end(self) -> None:
        """Report a last line without an end."""
        if self._partial:
            self._count("the last line was cut off")
            self._tell_problems()

    def _count(self, problem: str) -> None:
        last, lines = self._problems[-1] if self._problems else ("", 0)
        if lines and (problem == last or len(self._problems) >= MOST_PROBLEMS):
            self._problems[-1] = (problem, lines + 1)
        else:
            self._problems.append((problem, 1))

    def _tell_problems(self) -> None:
        problems, self._problems = self._problems, []
        for problem, lines in problems:
            self._sink(BadLine(lane=self.lane, problem=clean(problem, 200), lines=lines))


class LocalProcess(LaneProcess):
    """A child of this process. Thread: `read`, `tell_output` and the events are the reader's; the rest any."""

    def __init__(self, plan: ProcessPlan, sink: Sink) -> None:
        """Start the process; raises OSError."""
        super().__init__(plan.lane, sink, plan.grace_s)
        self.metrics = MetricLines(plan.lane, self._tell)
        self.output = ChildOutput(plan.lane)
        passed = script_input.current() if plan.argv else None
        stdin = subprocess.DEVNULL if passed is None else passed.open(self.tell_input)
        try:
            launched = launch(plan, stdin)
        finally:
            if stdin >= 0:
                os.close(stdin)
        self._popen, self._guard = launched.popen, launched.guard
        self.pid = self._popen.pid
        self.metric_fd, self._request_fd = launched.metric_fd, launched.request_fd
        self._takers = {self.metric_fd: self.metrics.take}
        for stream, take in ((self._popen.stdout, self.output.take), (self._popen.stderr, self.output.take_error)):
            if stream is not None:
                self._takers[stream.fileno()] = take
        self._open = set(self._takers)
        self._reader_failed = False
        self._gate = threading.Lock()
        self._closed = False
        """Whether the descriptors and the pid may belong to another process."""
        self._reads = True
        self._suspended = self._held = False
        self._closed_s, self._runs_on = 0.0, False
        self._suspended_time = launched.suspended
        if hasattr(os, "waitid"):  # missing on macOS before Python 3.13
            start_thread("tfmon-stops", self._follow_stops, lambda _reason: None)

    def _follow_stops(self) -> None:
        stopped = told = False
        with contextlib.suppress(ChildProcessError):
            while True:
                change = os.WCONTINUED if stopped else os.WSTOPPED
                status = os.waitid(os.P_PID, self.pid, change | os.WEXITED | os.WNOWAIT)
                if status is None or status.si_code not in (os.CLD_STOPPED, os.CLD_CONTINUED):
                    return
                stopped, foreign = not stopped, False
                if not stopped:
                    self._suspended_time.ends()
                with self._gate:  # a lane that `continue_` continues is not stopped by another program
                    if stopped and os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT):
                        self._suspended_time.begins()
                        foreign = not (self._suspended or self._held)
                if told != foreign:
                    told, reason = foreign, STOPPED.format(self.pid) if foreign else ""
                    self._tell(NotMeasured(lane=self.lane, what="stopped", reason=reason))

    def send(self, request: Request) -> bool:
        """See `LaneProcess`."""
        return self.write(encode_message(request))

    def write(self, data: bytes) -> bool:
        """Write requests; return False if nobody reads."""
        with self._gate:
            if self._closed or not self._reads:
                return False
            try:
                os.write(self._request_fd, data)
            except OSError:
                return False
            return True

    def end_requests(self) -> None:
        """Close the pipe of the requests, which ends the lane of a scenario."""
        with self._gate:
            if self._reads and not self._closed:
                self._reads = False
                os.close(self._request_fd)

    def kill(self, number: int) -> None:
        """See `LaneProcess`."""
        with self._gate:
            self._kill_now(number)

    def _kill_now(self, number: int) -> None:
        """Takes no lock, because a signal's handler calls it."""
        if number == signal.SIGCONT:
            self._suspended_time.ends()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if not self._closed:
                os.killpg(self.pid, number)
        if number == signal.SIGSTOP:
            self._suspended_time.begins()

    def suspend(self) -> None:
        """See `LaneProcess`."""
        self._suspended = True
        self.kill(signal.SIGSTOP)

    def continue_(self) -> None:
        """See `LaneProcess`."""
        with self._gate:
            before, self._suspended = self._suspended, False
            if before:
                self._kill_now(signal.SIGCONT)

    def hold(self) -> None:
        """Stop the child until `go_on`."""
        self._held = True
        self._kill_now(signal.SIGSTOP)

    def go_on(self) -> None:
        """Continue the child unless suspended."""
        self._held = False
        if not self._suspended:
            self._kill_now(signal.SIGCONT)

    def request_end(self) -> None:
        """See `LaneProcess`."""
        self.end_requested = True
        self.continue_()
        self.kill(signal.SIGCONT)
        self.send(Stop())
        if self.grace_s is not None:
            self.kill(signal.SIGINT)

    def ask_stacks(self) -> None:
        """See `LaneProcess`."""
        if self.grace_s is not None:  # it may use the signal itself
            self.send(ReportStack())
            return

        def report(*lines: str) -> None:
            if lines:
                self._tell(StackReported(lane=self.lane, lines=lines))

        start_thread("tfmon-stack", lambda: report(*self._read_stacks()), report)

    def _read_stacks(self) -> tuple[str, ...]:
        """Wait for the stacks; return them, or empty."""
        before = self.output.printed_bytes
        with self._gate, contextlib.suppress(ProcessLookupError, PermissionError):
            if not self._closed:
                os.kill(self.pid, STACK_SIGNAL)
        deadline = time.monotonic() + STACK_PATIENCE_S
        lines: tuple[str, ...] = ()
        while time.monotonic() < deadline and not self.ended:
            time.sleep(STACK_POLL_S)
            result = self.output.stack_since(before)
            if result and result == lines:  # nothing more came
                return result
            lines = result
        return ()

    def start_reading(self, failed: Failed) -> None:
        """Start the thread that reads the pipes until the child has ended."""

        def fail(reason: str) -> None:
            self._reader_failed = True
            failed(reason)

        start_thread("tfmon-reader", self._read_all, fail)

    def _read_all(self) -> None:
        look_s = 0.0
        with selectors.DefaultSelector() as selector:
            for fd in self._open:
                selector.register(fd, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select(REAP_SOON_S if self._ends_soon else REAP_EVERY_S):
                    self.read(key.fd)
                    if key.fd not in self._open:
                        selector.unregister(key.fd)
                if len(self._open) < len(self._takers) or time.monotonic() >= look_s:
                    look_s = time.monotonic() + REAP_EVERY_S
                    if self._look():
                        return

    def read(self, fd: int) -> bool:
        """Take one chunk; return False without data."""
        try:
            chunk = os.read(fd, CHUNK_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            chunk = b""
        if chunk:
            self._takers[fd](chunk)
        else:
            self._open.discard(fd)
        return bool(chunk)

    def poll(self) -> bool:
        """Return whether the child has ended."""
        return self._popen.poll() is not None

    def has_ended(self) -> bool:
        """See `LaneProcess`."""
        if self._reader_failed and not self.ended and self.poll():
            self.kill(signal.SIGKILL)
            self.over.set()
        return self.ended

    @property
    def _ends_soon(self) -> bool:
        return self.metric_fd not in self._open and not self._runs_on

    def _look(self) -> bool:
        """Report changes; return whether the child has ended."""
        ended = self.poll()
        self.tell_output()
        if ended:
            self._tell_end(self._reap())
            return True
        if self._ends_soon:
            self._closed_s = self._closed_s or time.monotonic()
            self._runs_on = time.monotonic() - self._closed_s > ENDS_WITHIN_S
            if self._runs_on:
                self._tell(NotMeasured(lane=self.lane, what="steps", reason=CHANNEL_CLOSED))
        return False

    def tell_output(self, *, last: bool = False) -> None:
        """Report new output, a few times a second at most."""
        news = self.output.news(time.monotonic_ns(), last=last)
        if news is not None:
            self._tell(news)

    def _reap(self) -> int:
        code = self._popen.wait()
        self.kill(signal.SIGKILL)
        if self._guard is not None:
            self._guard.dismiss()
        for fd in self._takers:
            for _ in range(LAST_CHUNKS):
                if not self.read(fd):
                    break
        self.end_requests()
        with self._gate:
            self._closed = True
            os.close(self.metric_fd)
        for stream in (self._popen.stdout, self._popen.stderr):
            if stream is not None:
                stream.close()
        return code

    def _tell_end(self, code: int) -> None:
        self.metrics.end()
        self.tell_output(last=True)
        self._tell(
            LaneEnded(
                lane=self.lane,
                exit_code=code if code >= 0 else None,
                signal=signal_name(-code) if code < 0 else None,
                requested=self.end_requested,
                output_tail=tuple(without_chatter(self.output.tail())),
            )
        )
        # Last, because a waiter then reads how the lanes ended.
        self.over.set()


def end_processes(processes: Sequence[LaneProcess], hurried: Callable[[], bool] = lambda: False) -> None:
    """End processes by a request, SIGTERM and SIGKILL. If `hurried`, SIGTERM follows at once."""
    graces_s = [process.grace_s for process in processes if process.grace_s is not None]
    for process in processes:
        process.request_end()
    if wait_ended(processes, max(graces_s, default=ASK_S), hurried):
        return
    for number, patience_s in ((signal.SIGTERM, TERM_S), (signal.SIGKILL, KILL_S)):
        for process in processes:
            if not process.ended:
                process.kill(number)
        if wait_ended(processes, patience_s):
            return


def wait_ended(
    processes: Sequence[LaneProcess], timeout_s: float, given_up: Callable[[], bool] = lambda: False
) -> bool:
    """Return whether all processes end in time, unless `given_up`."""
    deadline = time.monotonic() + timeout_s
    while running := [process for process in processes if not process.has_ended()]:
        left_s = deadline - time.monotonic()
        if left_s <= 0 or given_up():
            return False
        running[0].over.wait(min(left_s, LOOK_S))
    return True

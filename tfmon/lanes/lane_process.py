"""The process of a lane on any machine."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol, TypeAlias

from tfmon.lanes import script_input
from tfmon.lanes.launch import BOOTSTRAP, Child, Command, launch
from tfmon.lanes.pipes import ChildOutput, MetricLines
from tfmon.lanes.plan import LanePlan, RacePlan
from tfmon.model.codec import encode_message
from tfmon.model.events import Event, LaneEnded
from tfmon.model.lane_events import FromLane
from tfmon.model.lane_texts import without_chatter
from tfmon.model.requests import ReportStack, Request, Stop
from tfmon.model.script_events import CHANNEL_CLOSED, NotMeasured, StackReported
from tfmon.system.threads import start_thread

STACK_SIGNAL = signal.SIGUSR1
STACK_PATIENCE_S = 15.0


class LaneProcess(ABC):
    """A child in its own process group. Thread: taking bytes and sending events, the reader; the rest any."""

    pid: int
    grace_s: float | None = None
    """`None` for a process that ends at a request."""
    stack_poll_s = 0.05
    """After this time without output the stacks are complete."""

    def __init__(self, lane: str, sink: Sink, here: Callable[[FromLane], FromLane] | None = None) -> None:
        self.lane = lane
        self._tell: Callable[[Event], None] = partial(sink, self)
        self.metrics = MetricLines(lane, self._tell, here)
        self.output = ChildOutput(lane)
        self.end_requested = False
        self.ended = False

    @abstractmethod
    def write(self, data: bytes) -> bool:
        """Write requests; return False if nobody reads."""

    @abstractmethod
    def kill(self, number: signal.Signals, *, alone: bool = False) -> None:
        """Signal the process group, or the child alone, unless it is reaped."""

    @abstractmethod
    def suspend(self) -> None:
        """Stop the child."""

    @abstractmethod
    def continue_(self) -> None:
        """Continue the child if `suspend` stopped it, not somebody else."""

    def send(self, request: Request) -> bool:
        """Send a request; return False if nobody reads."""
        return self.write(encode_message(request))

    def request_end(self) -> None:
        """Request the end, or send SIGINT to a user's command."""
        self.end_requested = True
        self.continue_()
        self.kill(signal.SIGCONT)
        self.send(Stop())
        if self.grace_s is not None:
            self.kill(signal.SIGINT)

    def read_stacks(self) -> tuple[str, ...]:
        """Return the stacks, or empty; waits for them.

        Only for a lane that `reports_stack`: the signal would end others.
        """
        before = self.output.printed_bytes
        self.kill(STACK_SIGNAL, alone=True)
        deadline = time.monotonic() + STACK_PATIENCE_S
        lines: tuple[str, ...] = ()
        while time.monotonic() < deadline and not self.ended:
            time.sleep(self.stack_poll_s)
            result = self.output.stack_since(before)
            if result and result == lines:  # nothing more came
                return result
            lines = result
        return ()

    def ask_stacks(self) -> None:
        """Report the stacks as an event."""
        if self.grace_s is not None:  # it may use the signal itself
            self.send(ReportStack())
            return

        def report(*lines: str) -> None:
            if lines:
                self._tell(StackReported(lane=self.lane, at_ns=time.monotonic_ns(), lines=lines))

        start_thread("tfmon-stack", lambda: report(*self.read_stacks()), report)

    def tell_input(self, reason: str) -> None:
        """Report why the child's standard input is incomplete."""
        self._tell(NotMeasured(lane=self.lane, at_ns=time.monotonic_ns(), what="stdin", reason=reason))

    def tell_output(self, *, last: bool = False) -> None:
        """Report new output, a few times a second at most."""
        news = self.output.news(time.monotonic_ns(), last=last)
        if news is not None:
            self._tell(news)

    def _tell_end(self, code: int | None, at_ns: int) -> None:
        """`code` as in `Popen`; `None` if unknown."""
        self.metrics.end()
        self.output.take(b"")
        self.tell_output(last=True)
        self._tell(
            LaneEnded(
                lane=self.lane,
                at_ns=at_ns,
                exit_code=code if code is None or code >= 0 else None,
                signal=signal_name(-code) if code is not None and code < 0 else None,
                requested=self.end_requested,
                output_tail=tuple(without_chatter(self.output.tail())),
            )
        )
        # Last, because a waiter then reads how the lanes ended.
        self.ended = True


Sink: TypeAlias = Callable[[LaneProcess, Event], None]


def signal_name(number: int) -> str:
    """Return a signal's name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Place(Protocol):
    """Another machine with lanes."""

    def ensure(self) -> None:
        """Connect if necessary; may block for seconds; raises TfmonError."""

    def start_lane(
        self, lane: LanePlan, plan: RacePlan, script: Path, sink: Sink, ended: Callable[[], None]
    ) -> LaneProcess:
        """Start a lane; raises OSError, or TfmonError if the host is lost."""

    def hold(self) -> None:
        """Stop its lanes while tfmon is stopped. Thread: also a signal's handler."""

    def go_on(self) -> None:
        """Continue its lanes, except suspended ones. Thread: also a signal's handler."""


STOPPED = "a signal such as SIGSTOP or SIGTTIN, or a debugger, has stopped it; kill -CONT {} lets it go on"


class LocalProcess(Child, LaneProcess):
    """A child of this process. Thread: `read`, `poll` and `look` are the reader's; the rest any."""

    def __init__(
        self,
        lane: str,
        python: Path,
        environment: dict[str, str | None],
        sink: Sink,
        script: Path = BOOTSTRAP,
        command: Command | None = None,
        *,
        split: bool = False,
    ) -> None:
        LaneProcess.__init__(self, lane, sink)
        passed = script_input.current() if command is not None else None
        stdin = subprocess.DEVNULL if passed is None else passed.open(self.tell_input)
        try:
            launched = launch(python, environment, script, command, stdin=stdin, split=split)
        finally:
            if stdin >= 0:
                os.close(stdin)
        Child.__init__(self, launched, self.metrics.take, self.output.take, self.output.take_error)
        self._seen_stopped = self._told_stopped = False

    def look(self, *, ended: bool) -> None:
        """Report output, an end, or a closed metric pipe."""
        self.tell_output()
        if ended:
            self._tell_end(self._reap(), time.monotonic_ns())
            return
        before = self.runs_on
        super().look(ended=ended)
        if self.runs_on and not before:
            at_ns = time.monotonic_ns()
            self._tell(NotMeasured(lane=self.lane, at_ns=at_ns, what="steps", reason=CHANNEL_CLOSED))
        self._tell_stopped()

    def _tell_stopped(self) -> None:
        """After two equal checks."""
        before, self._seen_stopped = self._seen_stopped, not self._suspended and _is_stopped(self.pid)
        if (before and self._seen_stopped) != self._told_stopped:
            self._told_stopped = not self._told_stopped
            reason = STOPPED.format(self.pid) if self._told_stopped else ""
            self._tell(NotMeasured(lane=self.lane, at_ns=time.monotonic_ns(), what="stopped", reason=reason))


def _is_stopped(pid: int) -> bool:
    """waitid(2) is missing on macOS before Python 3.13."""
    if not hasattr(os, "waitid"):
        return False
    try:
        return os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False

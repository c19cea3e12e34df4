"""The process of a lane on any machine: sends it requests and signals, and decodes its output."""

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
from tfmon.lanes.plan import LanePlan, RacePlan, process_command
from tfmon.model.codec import encode_message
from tfmon.model.events import Event, LaneEnded
from tfmon.model.lane_events import FromLane
from tfmon.model.lane_texts import without_chatter
from tfmon.model.requests import ReportStack, Request, Stop
from tfmon.model.script_events import CHANNEL_CLOSED, NotMeasured, StackReported
from tfmon.system.threads import start_thread

STACK_SIGNAL = signal.SIGUSR1
STACK_PATIENCE_S = 15.0
"""Time limit of the stacks: a suspended process writes them in its next slice."""


class LaneProcess(ABC):
    """A child in its own process group. Thread: taking bytes and sending events, the reader; the rest any."""

    pid: int
    grace_s: float | None = None
    """Time for a user's command to end after SIGINT; `None` for a process that ends at a request."""
    stack_poll_s = 0.05
    """The stacks are complete after this time without output."""

    def __init__(self, lane: str, sink: Sink, here: Callable[[FromLane], FromLane] | None = None) -> None:
        self.lane = lane
        self._tell: Callable[[Event], None] = partial(sink, self)
        self.metrics = MetricLines(lane, self._tell, here)
        self.output = ChildOutput(lane)
        self.end_requested = False
        self.ended = False
        """True after the child was reaped, its output read, and its end reported."""

    @abstractmethod
    def write(self, data: bytes) -> bool:
        """Write to the request pipe; return False when the child no longer reads."""

    @abstractmethod
    def kill(self, number: signal.Signals, *, alone: bool = False) -> None:
        """Signal the child and everything it started in its process group, or it alone, unless it is reaped."""

    @abstractmethod
    def suspend(self) -> None:
        """Stop the child and its threads where they are: it uses no CPU, and its pipeline gets no further."""

    @abstractmethod
    def continue_(self) -> None:
        """Continue a child that `suspend` stopped. A child that somebody else stopped stays stopped."""

    @abstractmethod
    def hold(self) -> None:
        """Stop the child for as long as the monitor is stopped. Thread: also a signal's handler."""

    @abstractmethod
    def go_on(self) -> None:
        """Continue the child unless it is suspended. Thread: also a signal's handler."""

    def send(self, request: Request) -> bool:
        """Send a request; return False when the child no longer reads."""
        return self.write(encode_message(request))

    def request_end(self) -> None:
        """Make the child end: by a request, and a user's command by SIGINT, as Ctrl+C in a terminal sends it."""
        self.end_requested = True
        self.continue_()
        self.kill(signal.SIGCONT)  # also a child that somebody else has stopped
        self.send(Stop())
        if self.grace_s is not None:
            self.kill(signal.SIGINT)

    def read_stacks(self) -> tuple[str, ...]:
        """Return the lines of the child's thread stacks, or empty if it does not answer. Works even if it hangs.

        Only for a lane that `reports_stack`: the signal would end another one. Thread: any; it waits.
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
        """Report the stacks of the child's threads as an event, if it answers. Thread: any."""
        if self.grace_s is not None:  # a user's command, which may use the signal itself
            self.send(ReportStack())
            return

        def report(*lines: str) -> None:
            if lines:
                self._tell(StackReported(lane=self.lane, at_ns=time.monotonic_ns(), lines=lines))

        start_thread("tfmon-stack", lambda: report(*self.read_stacks()), report)

    def tell_input(self, reason: str) -> None:
        """Report why the child does not get all of tfmon's standard input."""
        self._tell(NotMeasured(lane=self.lane, at_ns=time.monotonic_ns(), what="stdin", reason=reason))

    def tell_output(self, *, last: bool = False) -> None:
        """Report the output of the child, a few times a second at most."""
        news = self.output.news(time.monotonic_ns(), last=last)
        if news is not None:
            self._tell(news)

    def _tell_end(self, code: int | None, at_ns: int) -> None:
        """Report the rest of the child's output, and its end; `code` as in `Popen`, `None` for unknown."""
        self.metrics.end()
        self.output.take(b"")  # pass on the rest
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
        # Last: whoever waits for the end of all lanes reads next how they ended.
        self.ended = True


Sink: TypeAlias = Callable[[LaneProcess, Event], None]


def signal_name(number: int) -> str:
    """Return a signal as SIGKILL; one without a name by its number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Place(Protocol):
    """Another machine that lanes can be started on."""

    def ensure(self) -> None:
        """Connect again where the connection is lost; may block for seconds; raises TfmonError."""

    def start_lane(
        self, lane: LanePlan, plan: RacePlan, script: Path, sink: Sink, ended: Callable[[], None]
    ) -> LaneProcess:
        """Start the process of a lane; raises OSError if it did not start, TfmonError if the host is lost."""

    def hold(self) -> None:
        """Stop its lanes for as long as the monitor is stopped. Thread: also a signal's handler."""

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
        """Start the process of a lane. None removes a variable. Raises OSError if it did not start."""
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
        """Report output, an end, and whether the child runs on without its end of the metric pipe."""
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
        """Report that somebody else has stopped the child, as two looks in a row show, and when it goes on."""
        before, self._seen_stopped = self._seen_stopped, not self._suspended and _is_stopped(self.pid)
        if (before and self._seen_stopped) != self._told_stopped:
            self._told_stopped = not self._told_stopped
            reason = STOPPED.format(self.pid) if self._told_stopped else ""
            self._tell(NotMeasured(lane=self.lane, at_ns=time.monotonic_ns(), what="stopped", reason=reason))


def start_process(lane: LanePlan, plan: RacePlan, script: Path, sink: Sink, *, split: bool) -> LocalProcess:
    """Start the process of a lane here; raises OSError. `split` as in `launch`."""
    command = process_command(plan, lane)
    return LocalProcess(lane.spec.name, plan.python, lane.environment, sink, script, command, split=split)


def _is_stopped(pid: int) -> bool:
    """Return whether a child is stopped, or False if `os` has no waitid(2), as on macOS before Python 3.13."""
    if not hasattr(os, "waitid"):
        return False
    try:
        return os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False

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
from tfmon.lanes.plan import LanePlan, RacePlan
from tfmon.model.codec import encode_message
from tfmon.model.events import Event, LaneEnded
from tfmon.model.lane_events import FromLane
from tfmon.model.lane_texts import without_chatter
from tfmon.model.requests import Request, Stop
from tfmon.model.script_events import CHANNEL_CLOSED, NotMeasured

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
        self._suspended = False
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
    def suspend_with_monitor(self) -> None:
        """Stop the child for as long as the monitor is stopped. Thread: also a signal's handler."""

    @abstractmethod
    def continue_with_monitor(self) -> None:
        """Continue the child unless it was suspended before. Thread: also a signal's handler."""

    def assign(self, lane: str) -> None:
        """Make a spare worker the process of a lane."""
        self.lane = self.metrics.lane = self.output.lane = lane

    def send(self, request: Request) -> bool:
        """Send a request; return False when the child no longer reads."""
        return self.write(encode_message(request))

    def request_end(self) -> None:
        """Make the child end: by a request, and a user's command by SIGINT, as Ctrl+C in a terminal sends it."""
        self.end_requested = True
        self.continue_()
        self.send(Stop())
        if self.grace_s is not None:
            self.kill(signal.SIGINT)

    def suspend(self) -> None:
        """Stop the child and its threads where they are: it uses no CPU, and its pipeline gets no further."""
        self._suspended = True
        self.kill(signal.SIGSTOP)

    def continue_(self) -> None:
        """Continue a suspended child, without effect on others."""
        self._suspended = False
        self.kill(signal.SIGCONT)

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
        self.output.take(b"")  # passes on what is left
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
        """Start the process of a lane; raises OSError if it did not start."""

    def suspend_with_monitor(self) -> None:
        """Suspend its lanes for as long as the monitor is stopped. Thread: also a signal's handler."""

    def continue_with_monitor(self) -> None:
        """Continue its lanes. Thread: also a signal's handler."""


ENDS_WITHIN_S = 2.0
"""A process that still runs this long after closing its metric pipe continues to train."""


STOPPED = "a signal such as SIGSTOP or SIGTTIN, or a debugger, has stopped it; kill -CONT {} lets it go on"


class LocalProcess(Child, LaneProcess):
    """A child of this process. Thread: `read`, `tell_output`, `poll` and `reap` are the reader's; the rest any."""

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
        """Start the process of a lane; None removes a variable; raises OSError if it did not start."""
        LaneProcess.__init__(self, lane, sink)
        passed = script_input.current() if command is not None else None
        stdin = subprocess.DEVNULL if passed is None else passed.open(self.tell_input)
        try:
            launched = launch(python, environment, script, command, stdin=stdin, split=split)
        finally:
            if stdin >= 0:
                os.close(stdin)
        Child.__init__(self, launched, self.metrics.take, self.output.take, self.output.take_error)
        self._closed_s, self._runs_on = 0.0, False
        self._seen_stopped = self._told_stopped = False

    def suspend_with_monitor(self) -> None:
        """Stop the child for as long as the monitor is stopped. Thread: also a signal's handler."""
        self._kill_now(signal.SIGSTOP)

    def continue_with_monitor(self) -> None:
        """Continue the child unless it was suspended before. Thread: also a signal's handler."""
        if not self._suspended:
            self._kill_now(signal.SIGCONT)

    @property
    def ends_soon(self) -> bool:
        """Whether the child has just closed its metric pipe, as one does that ends."""
        return self.metric_fd not in self.open and not self._runs_on

    def tell_stopped(self) -> None:
        """Report that somebody else has stopped the child, as two looks in a row show, and when it goes on."""
        before, self._seen_stopped = self._seen_stopped, not self._suspended and _is_stopped(self.pid)
        if (before and self._seen_stopped) != self._told_stopped:
            self._told_stopped = not self._told_stopped
            reason = STOPPED.format(self.pid) if self._told_stopped else ""
            self._tell(NotMeasured(lane=self.lane, at_ns=time.monotonic_ns(), what="stopped", reason=reason))

    def tell_closed(self) -> None:
        """Report once that the child runs on without its end of the metric pipe."""
        if not self.ends_soon:
            return
        self._closed_s = self._closed_s or time.monotonic()
        if time.monotonic() - self._closed_s > ENDS_WITHIN_S:
            self._runs_on = True
            at_ns = time.monotonic_ns()
            self._tell(NotMeasured(lane=self.lane, at_ns=at_ns, what="steps", reason=CHANNEL_CLOSED))

    def reap(self) -> None:
        """Reap an ended child, and report its end."""
        self._tell_end(self._reap(), time.monotonic_ns())


def _is_stopped(pid: int) -> bool:
    """Return whether a child is stopped, or False if `os` has no waitid(2), as on macOS before Python 3.13."""
    if not hasattr(os, "waitid"):
        return False
    try:
        return os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False

"""A lane's process on the monitor's own machine: its pipes, its signals and its end."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from tfmon.lanes.child import Child
from tfmon.lanes.launch import BOOTSTRAP, Command, launch
from tfmon.lanes.process import LaneProcess, Sink
from tfmon.model.lane_events import CHANNEL_CLOSED, NotMeasured

ENDS_WITHIN_S = 2.0
"""A process that still runs this long after its metric pipe was closed trains on."""


STOPPED = "a signal such as SIGSTOP or SIGTTIN, or a debugger, has stopped it; kill -CONT {} lets it go on"


class LocalProcess(Child, LaneProcess):
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
        Child.__init__(self, launch(python, environment, script, command))
        LaneProcess.__init__(self, lane, sink)
        self._take_metrics, self._take_output = self._metrics.take, self._output.take
        self._closed_s, self._runs_on = 0.0, False
        self._seen_stopped = self._told_stopped = False

    def suspend_with_monitor(self) -> None:
        """Stop the child for as long as the monitor is stopped. Thread: also a signal's handler."""
        self._signal_now(signal.SIGSTOP)

    def continue_with_monitor(self) -> None:
        """Continue the child unless it was suspended before. Thread: also a signal's handler."""
        if not self._suspended:
            self._signal_now(signal.SIGCONT)

    # ---------------------------------------------------------------- the reader's side

    @property
    def ends_soon(self) -> bool:
        """Whether the child has just closed its metric pipe, as one does that ends."""
        return not self.metrics_open and not self._runs_on

    def tell_stopped(self) -> None:
        """Tell that somebody else has stopped the child, as two looks in a row show, and when it goes on."""
        before, self._seen_stopped = self._seen_stopped, not self._suspended and _is_stopped(self.pid)
        if (before and self._seen_stopped) != self._told_stopped:
            self._told_stopped = not self._told_stopped
            reason = STOPPED.format(self.pid) if self._told_stopped else ""
            self._tell(NotMeasured(lane=self.lane, at_ns=time.monotonic_ns(), what="stopped", reason=reason))

    def tell_closed(self) -> None:
        """Tell once that the child runs on without its end of the metric pipe."""
        if not self.ends_soon:
            return
        self._closed_s = self._closed_s or time.monotonic()
        if time.monotonic() - self._closed_s > ENDS_WITHIN_S:
            self._runs_on = True
            at_ns = time.monotonic_ns()
            self._tell(NotMeasured(lane=self.lane, at_ns=at_ns, what="steps", reason=CHANNEL_CLOSED))

    def reap(self) -> None:
        """Reap an ended child, and tell how it ended."""
        self._tell_end(self._reap(), time.monotonic_ns())


def _is_stopped(pid: int) -> bool:
    """Return whether a process is stopped; False where that is not known.

    Source: Linux, the state in /proc/PID/stat.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1] == b"T"
    except OSError:
        return False

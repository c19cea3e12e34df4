"""A viewer of a run in another process."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Sequence
from concurrent import futures
from dataclasses import replace
from typing import TYPE_CHECKING

from tfmon.analysis.analysis import analyse
from tfmon.analysis.series_tables import lane_series_progress
from tfmon.api import sockets
from tfmon.api.run_base import Run, Tell, state_folder
from tfmon.catalog import list_scenarios
from tfmon.errors import EXIT_FINE, EXIT_INTERRUPTED, EXIT_LANE_FAILED, TfmonError, UsageError
from tfmon.model import codec
from tfmon.model.event_base import Event
from tfmon.model.header import SCHEMA
from tfmon.model.ports import Say, Source
from tfmon.model.race import Machine, ScenarioInfo
from tfmon.model.readings import HostSample
from tfmon.model.requests import Command
from tfmon.model.session import Session, Snapshot
from tfmon.recordings.header_lines import Known
from tfmon.system.threads import start_thread
from tfmon.version import __version__

if TYPE_CHECKING:
    from tfmon.api.remote_runs import RemoteRuns


class Viewer(Run, Source):
    """A run in another process. Thread: any."""

    disturbs = False

    def __init__(
        self,
        connection: socket.socket,
        *,
        remote: RemoteRuns | None = None,
        began_here: bool = False,
        detachable: bool = True,
    ) -> None:
        """Prepare a viewer. A signal to this process ends a run that `began_here`."""
        self._connection, self._lines = connection, connection.makefile("rb")
        self._remote, self.began_here, self.detachable = remote, began_here, detachable
        self._ahead_ns = 0
        self.greeting: sockets.RunnerGreeting | None = None
        self._received_ns = 0
        self.session = Session(Machine(), self._clock_ns)
        self.ended: sockets.Answer | None = None
        self.start_lines: list[str] = []
        self.over = threading.Event()
        self.tell: Tell = lambda _text: None
        self.counted = False
        """Whether samples of tfmon include this process."""
        self._processor_time = time.monotonic(), time.process_time()
        self._numbers = itertools.count(1)
        self._answers: dict[int, futures.Future[sockets.Answer]] = {}
        self.left = False
        self.died = False
        """Whether the connection ended without a valid message."""
        self._ending = False

    def connect(self) -> None:
        """Wait for the first snapshot, and follow the run; raises TfmonError."""
        if self.greeting is not None:
            return
        self._connection.settimeout(None)
        greeting = sockets.read_greeting(self._line())
        self._ahead_ns = time.monotonic_ns() - greeting.clock_ns if self._remote is not None else 0
        other = UsageError(
            f"process {greeting.pid} runs {greeting.scenario} with tfmon {greeting.tfmon}, schema "
            f"{greeting.schema}; this is tfmon {__version__}, schema {SCHEMA}",
            "attach with the tfmon that runs it; once it is over, tfmon runs lists its recording",
        )
        if greeting.schema != SCHEMA:
            raise other
        self.greeting = greeting
        self.send(Command("follow", name=_terminal()))
        if not (line := self._line()):
            raise self.lost_error()
        try:
            self._take(line)
        except codec.CodecError:
            raise other from None
        start_thread("tfmon-view", self._follow, self._lose)

    @property
    def name(self) -> str:
        """The run's name in commands."""
        assert self.greeting is not None, "not connected"
        host = self._remote.host.name if self._remote is not None else ""
        name = replace(self.greeting, recording=self.session.snapshot().recorded, host=host).name
        return f"{host}/{name}" if host else name

    def _clock_ns(self) -> int:
        """Return the time at the runner, which stands still after a loss: nothing is known of the run since."""
        return self._received_ns if self.died else time.monotonic_ns() - self._ahead_ns

    def snapshot(self) -> Snapshot:
        """Return the present state."""
        return self.session.snapshot()

    def _line(self) -> bytes:
        with contextlib.suppress(OSError):
            return self._lines.readline(sockets.LONGEST_BYTES)
        return b""

    def _follow(self) -> None:
        while self.ended is None and (line := self._line()):
            self._take(line)
        self._lose("")

    def _take(self, line: bytes) -> None:
        message: sockets.FromRunner = codec.read(codec.parse(line), sockets.FromRunner)
        self._received_ns = time.monotonic_ns() - self._ahead_ns
        if isinstance(message, Known):
            self.session.restore(message.known)
        elif isinstance(message, sockets.Answer):
            if message.number == sockets.END:
                self.ended = message
            elif message.number in self._answers:
                self._answers.pop(message.number).set_result(message)
            elif text := message.error or ("" if message.number else message.text):
                self.tell(text)
        elif isinstance(message, HostSample) and self.counted and not message.host:
            self.session.accept(self._with_viewer(message))
        elif isinstance(message, Event):
            self.session.accept(message)

    def _with_viewer(self, sample: HostSample) -> HostSample:
        (before_s, used_s), self._processor_time = self._processor_time, (time.monotonic(), time.process_time())
        if not isinstance(sample.monitor_cpu_pct, int | float):
            return sample
        viewer_pct = 100 * (self._processor_time[1] - used_s) / max(self._processor_time[0] - before_s, 1e-9)
        return replace(sample, monitor_cpu_pct=sample.monitor_cpu_pct + viewer_pct)

    def _lose(self, reason: str) -> None:
        self.died = self.ended is None and not self.left
        self.over.set()
        answer = sockets.Answer(error=reason or self.lost_error().message)
        while self._answers:
            self._answers.popitem()[1].set_result(answer)
        if self.died or not (self._ending or self.left):
            self.tell(reason or (self.lost_error().line if self.died else "the run has ended"))

    def lost(self) -> str:
        """Return a line about a dead runner."""
        return self.lost_error().line if self.died else ""

    def lost_error(self) -> TfmonError:
        """Return the error for a lost runner."""
        assert self.greeting is not None, "not connected"
        if self._remote is not None and (lost := self._remote.lost(self.name)):
            return lost
        text = f"process {self.greeting.pid}, which ran {self.greeting.scenario}, has ended unexpectedly"
        hint = f"what it recorded is there: tfmon replay last; {state_folder() / sockets.LOG} may say why"
        return TfmonError(text, hint, exit_code=EXIT_LANE_FAILED)

    def send(self, command: Command) -> None:
        """Send a request without a lock. Thread: also a signal's handler."""
        with contextlib.suppress(OSError):
            self._connection.sendall(codec.encode(command))

    def ask(self, command: Command, timeout_s: float | None = None) -> str:
        """Return the answer to a request; raises TfmonError."""
        number = next(self._numbers)
        waiting = self._answers[number] = futures.Future[sockets.Answer]()
        if self.over.is_set():
            raise self.lost_error()
        self.send(replace(command, number=number))
        try:
            answer = waiting.result(timeout_s)
        except futures.TimeoutError:
            raise TfmonError(f"the process that runs {self.name} does not answer") from None
        if answer.error:
            raise TfmonError(answer.error, answer.hint, exit_code=answer.exit_code or EXIT_LANE_FAILED)
        return answer.text

    def begin(self) -> None:
        """Wait until the lanes are started; raises TfmonError."""
        self.connect()
        self.start_lines = self.ask(Command("await start")).splitlines()

    def start(self, say: Say) -> None:
        """Connect, and display lines by `say`; raises TfmonError."""
        self.tell = say
        self.counted = self._remote is None
        self.connect()
        try:
            self.begin()
        except TfmonError as error:
            if not self.over.is_set():
                raise
            say(error.line)
        for line in self.start_lines if self.began_here else ():
            say(line)

    def scenarios(self) -> Sequence[ScenarioInfo]:
        """Return the possible scenarios."""
        return () if self.session.snapshot().sweep is not None else list_scenarios()

    def table(self) -> str:
        """Return all results as text."""
        from tfmon.reports.race_report import to_text  # late: it is slow to load

        return to_text(analyse(self.session.snapshot()))

    def join(self, timeout_s: float) -> bool:
        """Wait; return whether the run has ended."""
        return self.over.wait(timeout_s)

    def line(self) -> str:
        """Return the progress of a series."""
        return lane_series_progress(self.session.snapshot())

    def outcome(self, interrupted: str, *, as_json: bool) -> tuple[object, int]:
        """Return the output and the exit code, or how to see a run that goes on; raises TfmonError."""
        if self.died:
            raise self.lost_error()
        if self.ended is None:
            scenario, name = self.snapshot().race.scenario, self.name
            text = f"{scenario} runs in the background: tfmon attach {name} shows it, and with --end it ends"
            return text, EXIT_FINE
        result = self.ended.text
        return json.loads(result) if as_json and result else result, self.ended.exit_code

    def go_on_alone(self) -> bool:
        """End this process if the run can continue."""
        if self.detachable:
            os._exit(EXIT_INTERRUPTED)
        return False

    def request_end(self, name: str = "") -> None:
        """Request the end."""
        if not self._ending:
            self._ending = True
            self.send(Command("end run", name=name))

    def stop(self) -> None:
        """End the run, and wait."""
        self.request_end()
        self.over.wait()

    def end_now(self) -> None:
        """Kill ending commands."""
        self.send(Command("end now"))

    def leave(self) -> None:
        """Stop viewing; the run continues."""
        self.left = True
        self.send(Command("leave"))
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self, reason: str = "") -> None:
        """Leave, or end the run for a reason."""
        if self._ending or reason:
            self.request_end(reason.rpartition(" ")[2])
            self.over.wait()
        else:
            self.leave()

    def suspend_lanes(self) -> None:
        """Suspend the lanes."""
        self.send(Command("suspend"))

    def continue_lanes(self) -> None:
        """Continue the lanes."""
        self.send(Command("continue"))


def _terminal() -> str:
    for stream in (sys.stdin, sys.stdout):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            return os.ttyname(stream.fileno()).removeprefix("/dev/")
    return ""

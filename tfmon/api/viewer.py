"""A viewer of a run in another process: a session with its events, and requests through its socket."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

from tfmon.analysis.finish import ending_line
from tfmon.analysis.series_tables import lane_series_progress
from tfmon.api.run import AnyRun
from tfmon.api.sockets import (
    LOG,
    LONGEST_BYTES,
    Answer,
    Argument,
    Ended,
    Follow,
    FromRunner,
    FromViewer,
    LiveRun,
    Told,
    ViewerCall,
    read_greeting,
)
from tfmon.api.state import state_folder
from tfmon.errors import EXIT_INTERRUPTED, EXIT_LANE_FAILED, TfmonError, UsageError
from tfmon.lanes.suspend import Suspender
from tfmon.model import codec
from tfmon.model.ports import Controls, ExperimentError, Experiments
from tfmon.model.race import Machine
from tfmon.model.readings import HostSample
from tfmon.model.session import Session
from tfmon.model.threads import start_thread
from tfmon.recordings.header import SCHEMA, Known
from tfmon.version import __version__

if TYPE_CHECKING:
    from tfmon.api.remote_runs import RemoteRuns

ANSWER_S = 5.0


class Viewer(AnyRun):
    """A run in another process, which continues without the viewer. Thread: any; `tell` is called in its own."""

    disturbs = False

    def __init__(
        self,
        connection: socket.socket,
        meanwhile: Callable[[], object] = int,
        remote: RemoteRuns | None = None,
    ) -> None:
        """Wait for the first snapshot (tenths of a second after a day) and call `meanwhile`; raises TfmonError."""
        connection.settimeout(None)
        self._connection, self._lines = connection, connection.makefile("rb")
        self._remote = remote
        self.greeting = read_greeting(self._line())
        ahead_ns = time.monotonic_ns() - self.greeting.clock_ns if remote is not None else 0
        if self.greeting.schema != SCHEMA:
            raise self._other()
        self.session = Session(Machine(), lambda: time.monotonic_ns() - ahead_ns)
        """The state of the run, with a short delay."""
        self.ended: Ended | None = None
        """The end of the run. `None` before it, and if its process died."""
        self.over = threading.Event()
        """Set when no more events follow."""
        self.tell: Callable[[str], object] = lambda _text: None
        self.counted = False
        """Whether tfmon's own use in the machine's samples includes this process."""
        self._own = time.monotonic(), time.process_time()
        self._numbers = itertools.count(1)
        self._answers: dict[int, queue.SimpleQueue[Answer]] = {}
        self.left = False
        """Whether the user has left, and the run continues."""
        self.died = False
        """Whether the runner ended without a message, or sent an invalid one."""
        self._ending = False
        self._send(Follow(terminal=_terminal()))
        meanwhile()
        if not (known := self._line()):
            raise self.lost()
        try:
            self._take(known)
        except codec.CodecError:  # a checkout of the same schema, in development
            raise self._other() from None
        start_thread("tfmon-view", self._follow, self._lose)

    def _other(self) -> UsageError:
        """Return the error for a run of another version."""
        return UsageError(
            f"process {self.greeting.pid} runs {self.greeting.scenario} with tfmon {self.greeting.tfmon}, "
            f"schema {self.greeting.schema}; this is tfmon {__version__}, schema {SCHEMA}",
            "attach with the tfmon that runs it; once it is over, tfmon runs lists its recording",
        )

    @property
    def is_remote(self) -> bool:
        """Whether the run is on another machine."""
        return self._remote is not None

    @property
    def name(self) -> str:
        """The run's name in commands; the number of its process before its recording has begun."""
        recording = self.session.snapshot().recording
        path = recording.path if recording is not None else ""
        host = self._remote.host.name if self._remote is not None else ""
        return LiveRun(Path(), replace(self.greeting, recording=path), host).full_name

    def _line(self) -> bytes:
        with contextlib.suppress(OSError):
            return self._lines.readline(LONGEST_BYTES)
        return b""

    def _follow(self) -> None:
        while self.ended is None and (line := self._line()):
            self._take(line)
        self._lose("")

    def _take(self, line: bytes) -> None:
        said: FromRunner = codec.read(codec.parse(line), FromRunner)
        if isinstance(said, Known):
            self.session.restore(said.known)
        elif isinstance(said, Answer):
            if said.number in self._answers:
                self._answers.pop(said.number).put(said)
            elif said.error:
                self.tell(said.error)
        elif isinstance(said, Told):
            self.tell(said.text)
        elif isinstance(said, Ended):
            self.ended = said
        elif isinstance(said, HostSample) and self.counted and not said.host:
            self.session.accept(self._with_own(said))
        else:
            # What is left of the union is an event; mypy does not see that through the alias.
            self.session.accept(said)  # type: ignore[arg-type]

    def _with_own(self, sample: HostSample) -> HostSample:
        """Return a sample whose figures for tfmon include this process."""
        (before_s, used_s), self._own = self._own, (time.monotonic(), time.process_time())
        if not isinstance(sample.monitor_cpu_pct, int | float):
            return sample
        own_pct = 100 * (self._own[1] - used_s) / max(self._own[0] - before_s, 1e-9)
        return replace(sample, monitor_cpu_pct=sample.monitor_cpu_pct + own_pct)

    def _lose(self, reason: str) -> None:
        """Stop: the runner has ended, or sent an invalid message."""
        self.died = self.ended is None and not self.left
        self.over.set()
        answer = Answer(number=0, error=reason or self.lost().message)
        for waiting in list(self._answers.values()):
            waiting.put(answer)
        if self.died or not (self._ending or self.left):
            self.tell(reason or (self.lost().line if self.died else "the run has ended"))

    def lost(self) -> TfmonError:
        """Return the error for a runner that died, or whose host is lost."""
        if self._remote is not None and (lost := self._remote.lost(self.name)):
            return lost
        failed = TfmonError(
            f"process {self.greeting.pid}, which ran {self.greeting.scenario}, has ended without a word",
            f"what it recorded is there: tfmon replay last; {state_folder() / LOG} may say why",
        )
        failed.exit_code = EXIT_LANE_FAILED
        return failed

    def _send(self, message: FromViewer) -> None:
        """Send a message immediately, so that threads and signal handlers need no lock."""
        with contextlib.suppress(OSError):
            self._connection.sendall(codec.encode(message))

    def request(self, method: str, *arguments: Argument) -> None:
        """Send a request; events report the result."""
        self._send(ViewerCall(number=next(self._numbers), method=method, arguments=arguments))

    def ask(
        self,
        method: str,
        *arguments: Argument,
        named: dict[str, Argument] | None = None,
        timeout_s: float | None = None,
    ) -> Any:  # noqa: ANN401 - as the method returns it
        """Send a request and return the answer; raises TfmonError with its error."""
        number, waiting = next(self._numbers), queue.SimpleQueue[Answer]()
        self._answers[number] = waiting
        if self.over.is_set():
            raise self.lost()
        self._send(ViewerCall(number=number, method=method, arguments=arguments, named=named or {}))
        try:
            answer = waiting.get(timeout=timeout_s)
        except queue.Empty:
            raise TfmonError(f"process {self.greeting.pid} does not answer") from None
        if answer.error:
            failed = TfmonError(answer.error, answer.hint)
            failed.exit_code = answer.exit_code or EXIT_LANE_FAILED
            raise failed
        return answer.value

    @property
    def controls(self) -> Controls:
        """Sends requests to the lanes."""
        return cast(Controls, _Sender(self._control))

    def _control(self, name: str, *arguments: Argument) -> None:
        how = self.ask if name == "race" else self.request
        how(f"controls.{name}", *arguments)

    @property
    def experiments(self) -> Experiments:
        """Sends requests for measurements."""
        return cast(Experiments, _Sender(self._experiment))

    def _experiment(self, name: str, *arguments: Argument, **named: Argument) -> object:
        try:
            return self.ask(f"experiments.{name}", *arguments, named=named, timeout_s=ANSWER_S)
        except TfmonError as error:
            raise ExperimentError(error.message) from None

    def begin(self) -> None:
        """Wait until the lanes are started; raises TfmonError if that fails."""
        self.ask("begun")

    def join(self, timeout_s: float) -> bool:
        """Wait with a timeout; return whether the runner has ended."""
        return self.over.wait(timeout_s)

    def line(self) -> str:
        """Return the progress of a series in a line."""
        return lane_series_progress(self.session.snapshot())

    def go_on_alone(self) -> NoReturn:
        """End this process without its terminal; the run continues."""
        os._exit(EXIT_INTERRUPTED)

    def ending(self) -> str:
        """Return which commands were asked to end, with their remaining grace."""
        return ending_line(self.session.snapshot())

    def request_end(self, name: str = "") -> None:
        """Request the end of the run, with a signal's name if there was one."""
        if not self._ending:
            self._ending = True
            self.request("end", name)

    def end(self, name: str = "") -> None:
        """End the run; return when everything has ended and is recorded."""
        self.request_end(name)
        self.over.wait()

    def end_now(self) -> None:
        """Kill commands that were asked to end."""
        self.request("end_now")

    def leave(self) -> None:
        """Stop viewing; the run continues."""
        self.left = True
        self.request("leave")
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self, reason: str = "") -> None:
        """Leave, or wait for the requested end of a run, for a reason such as "interrupted by SIGTERM"."""
        if self._ending or reason:
            self.end(reason.rpartition(" ")[2])
        else:
            self.leave()

    @property
    def suspensions(self) -> list[Suspender]:
        """The objects that suspend the lanes along with this process."""
        return [Suspender(lambda: [self], lambda *_: None, print)]

    def suspend_with_monitor(self) -> None:
        """Suspend the lanes while this process is stopped. Thread: also a signal's handler."""
        self.request("suspend")

    def continue_with_monitor(self) -> None:
        """End `suspend_with_monitor`. Thread: also a signal's handler."""
        self.request("continue")


class _Sender:
    """Sends each method of a protocol, to which it is cast."""

    def __init__(self, send: Callable[..., Any]) -> None:
        self._send = send

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(self._send_method, name)

    def _send_method(self, name: str, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        plain = [tuple(one) if isinstance(one, list) else one for one in arguments]
        return self._send(name, *plain, **named)


def _terminal() -> str:
    for stream in (sys.stdin, sys.stdout):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            return os.ttyname(stream.fileno()).removeprefix("/dev/")
    return ""

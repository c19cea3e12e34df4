"""The server of a run for its viewers."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial

from tfmon.api.run_base import Interruption, LocalRun
from tfmon.api.sockets import (
    LONGEST_REQUEST_BYTES,
    Answer,
    Ended,
    Follow,
    Request,
    RunnerGreeting,
    listen,
    peer,
)
from tfmon.errors import EXIT_FINE, EXIT_INTERRUPTED, TfmonError
from tfmon.model import codec
from tfmon.model.control_messages import BeginRace, ChangeLanes, ControlMessage, EndRun, Perform, ProfileLanes
from tfmon.model.events import Event
from tfmon.model.lane_state import PAUSED
from tfmon.model.ports import ExperimentError
from tfmon.model.session import Snapshot
from tfmon.recordings.header_lines import Known
from tfmon.system.threads import start_thread

CALM_S = 1.0
"""Each wake-up costs CPU time."""
AFTER_KEY_S = 10.0
"""For this time after a request, events are sent at once. Source: `ui.monitor.CALM_NS`."""
MOST_WAITING = 2_000
MOST_VIEWERS = 16
FAREWELL_S = 10.0
"""For viewers that do not read."""
SLOW = (Perform("await_start"), Perform("examine"), Perform("watch_gpus"))
UNANNOUNCED = (*SLOW, Perform("repeat"), Perform("suspend"), Perform("continue"), Perform("leave"))


class Server:
    """The viewers of a run. Thread: any; the session may be locked when its lock is taken."""

    def __init__(self, program: LocalRun, interrupted: Interruption) -> None:
        self.lock = threading.Lock()
        self.viewers: list[Connection] = []
        self.lost = False
        """Whether a viewer vanished without leaving."""
        self.unreachable = ""
        self._program, self._interrupted = program, interrupted
        self._listening: socket.socket | None = None
        self._start = Future[str]()
        self.known = program.session.keep_journal(self._take)

    def _take(self, event: Event, known: Snapshot) -> None:
        with self.lock:
            self.known = known
            for viewer in self.viewers:
                viewer.add(event)

    def listen(self) -> None:
        """Listen for viewers, again if the socket was lost."""
        if self._listening is not None and os.path.exists(self._listening.getsockname()):  # noqa: PTH110
            return
        try:
            if self._listening is not None:
                self._listening.shutdown(socket.SHUT_RDWR)
                self._listening = None
            listening = self._listening = listen()
        except OSError as error:
            self.unreachable = f"no other terminal can attach to it ({error})"
        else:
            start_thread("tfmon-listen", partial(self._accept, listening), self._listen_again)

    def _listen_again(self, reason: str) -> None:
        log(reason)
        self._listening = None

    def _accept(self, listening: socket.socket) -> None:
        with contextlib.suppress(OSError), listening:  # until it is shut down
            while True:
                connection, _ = listening.accept()
                if peer(connection)[1] == os.getuid() and len(self.viewers) < MOST_VIEWERS:
                    with contextlib.suppress(OSError):
                        self.connect(connection)
                else:
                    connection.close()

    def connect(self, connection: socket.socket, *, ends_run: bool = False) -> Connection:
        """Add a viewer; with `ends_run`, the run ends if it vanishes."""
        known = self.known
        path = known.recording.path if known.recording is not None else ""
        greeting = RunnerGreeting(
            pid=os.getpid(), scenario=known.race.scenario, recording=path, clock_ns=time.monotonic_ns()
        )
        connection.sendall(codec.encode(greeting))
        viewer = Connection(self, connection, ends_run=ends_run)
        with self.lock:
            self.viewers.append(viewer)
        start_thread("tfmon-viewer", viewer.read, viewer.drop)
        return viewer

    def _disconnect(self, viewer: Connection) -> None:
        with self.lock:
            self.viewers.remove(viewer)
            watched = any(other.follows for other in self.viewers)
        if viewer.suspends:
            self._program.continue_lanes()
        if viewer.ends_run and not viewer.left:
            self._end(signal.SIGHUP.name)
        elif viewer.follows and not viewer.left:
            self.lost = True
            lanes = self._program.session.snapshot().lanes
            paused = tuple(lane.spec.name for lane in lanes if lane.phase == PAUSED)
            if paused and not watched:
                self._program.perform(ChangeLanes("resume", paused))

    def begin(self, start: TfmonError | Sequence[str]) -> None:
        """Set the result of the start."""
        if isinstance(start, TfmonError):
            self._start.set_exception(start)
        else:
            self._start.set_result("\n".join(start))

    def tell(self, text: str, except_to: Connection | None = None) -> None:
        """Display a line on all viewers, except one."""
        for viewer in [*self.viewers]:
            if viewer is not except_to:
                viewer.send(Answer(text=text))

    def all_done(self) -> bool:
        """Return whether nothing and nobody is left."""
        failed = self._start.done() and self._start.exception() is not None
        return not self.viewers and (failed or self._program.all_over)

    def close(self, exit_code: int, result: Sequence[str] = ()) -> None:
        """Send the end to all viewers."""
        if self._listening is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._listening.getsockname())  # noqa: PTH108
        leaving = [viewer for viewer in self.viewers if viewer.follows]
        for viewer in leaving:
            viewer.send(Ended(exit_code=exit_code, result=tuple(result)))
        until_s = time.monotonic() + FAREWELL_S
        for viewer in leaving:
            viewer.over.wait(max(0.0, until_s - time.monotonic()))

    def handle(self, viewer: Connection, request: Request) -> None:
        """Carry out a request; slow ones in a thread."""
        message = request.message
        if isinstance(message, Follow):
            return
        answer = partial(self._answer, viewer, request.number, message)
        if message in SLOW or isinstance(message, BeginRace | ProfileLanes):
            start_thread("tfmon-viewer", answer, log)
        else:
            answer()

    def _answer(self, viewer: Connection, number: int, message: ControlMessage) -> None:
        try:
            answer = Answer(number=number, text=self._perform(message))
        except TfmonError as error:
            answer = Answer(number=number, error=error.message, hint=error.hint, exit_code=error.exit_code)
        except ExperimentError as error:
            answer = Answer(number=number, error=str(error))
        except Exception as error:  # noqa: BLE001 - the run continues, whatever a request causes
            answer = Answer(number=number, error=f"{describe(message)} failed: {type(error).__name__}: {error}")
        if message not in UNANNOUNCED and not isinstance(message, ProfileLanes) and not answer.error:
            self.tell(f"{viewer.name}: {describe(message)}", except_to=viewer)
        viewer.send(answer)

    def _end(self, signal_name: str) -> None:
        if not (self._start.done() or self._program.session.snapshot().lanes):
            # The wait for a host or GPU would continue.
            code = EXIT_INTERRUPTED if signal_name else EXIT_FINE
            for viewer in self.viewers:
                with contextlib.suppress(OSError):
                    viewer.socket.sendall(codec.encode(Ended(exit_code=code)))
            os._exit(code)
        if not self._interrupted.count:  # a second call would not wait
            self._interrupted.take(signal_name)

    def _perform(self, message: ControlMessage) -> str:
        if isinstance(message, EndRun):
            self._end(message.signal)
            return ""
        if message == Perform("await_start"):
            return self._start.result()
        if message == Perform("suspend"):
            self._program.suspend_lanes()
        elif message == Perform("continue"):
            self._program.continue_lanes()
        elif message != Perform("leave"):
            return self._program.perform(message)
        return ""


class Connection:
    """A viewer and its queue. Thread: `add` with the server's lock; `read` and `_write` in their own."""

    def __init__(self, server: Server, connection: socket.socket, *, ends_run: bool) -> None:
        self.socket, self.ends_run, self._server = connection, ends_run, server
        self.follows = self.suspends = self.left = False
        self.over = threading.Event()
        self.name = f"process {peer(connection)[0]}"
        self._active_s = time.monotonic()
        self._wake = threading.Event()
        self._waiting: list[Event | Answer | Ended] = []
        self._behind = True
        """Whether a snapshot is sent next."""

    def add(self, event: Event) -> None:
        """Queue an event."""
        if self._behind or not self.follows:
            return
        self._waiting.append(event)
        if len(self._waiting) > MOST_WAITING:
            self._waiting = [line for line in self._waiting if isinstance(line, Answer | Ended)]
            self._behind = True
        if time.monotonic() - self._active_s < AFTER_KEY_S:
            self._wake.set()

    def send(self, message: Answer | Ended) -> None:
        """Queue a message after the events."""
        with self._server.lock:
            self._waiting.append(message)
        if len(self._waiting) > 2 * MOST_WAITING:
            self.drop()
        self._wake.set()

    def drop(self, reason: str = "") -> None:
        """End the connection."""
        if reason:
            log(reason)
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def read(self) -> None:
        """Handle requests until the connection ends."""
        try:
            with self.socket.makefile("rb") as lines, contextlib.suppress(OSError):
                while (line := lines.readline(LONGEST_REQUEST_BYTES)).endswith(b"\n"):
                    self._handle(codec.read(codec.parse(line), Request))
        except codec.CodecError as error:
            log(f"{self.name} sent an invalid request: {error}")
        finally:
            self.over.set()
            self._wake.set()
            self._server._disconnect(self)
            self.socket.close()

    def _handle(self, request: Request) -> None:
        self._active_s = time.monotonic()
        match request.message:
            case Follow(terminal=terminal) if not self.follows:
                self.name += f" on {codec.clean(terminal, 40)}" if terminal else ""
                self.follows = True
                self._wake.set()
                start_thread("tfmon-viewer", self._write, self.drop)
            case Perform("leave"):
                self.left = True
            case Perform("suspend" | "continue" as action):
                self.suspends = action == "suspend"
        self._server.handle(self, request)

    def _write(self) -> None:
        with contextlib.suppress(OSError):
            while not self.over.is_set():
                self._wake.wait(CALM_S)
                self._wake.clear()
                with self._server.lock:
                    known = [Known(known=self._server.known)] if self._behind else []
                    waiting, self._waiting, self._behind = self._waiting, [], False
                self.socket.sendall(b"".join(map(codec.encode, (*known, *waiting))))
                if any(isinstance(line, Ended) for line in waiting):
                    self.over.set()


def describe(message: ControlMessage) -> str:
    """Return such as "pause cpu"."""
    kind, *values = codec.plain(message).values()
    title = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in kind).strip()
    if isinstance(message, ChangeLanes | Perform):
        title, *values = values
    parts = [", ".join(value) if isinstance(value, list) else str(value) for value in values if value is not None]
    return f"{title.replace('_', ' ')} {', '.join(parts)}".strip()


def log(line: str) -> None:
    """Write a line to the runners' log."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201

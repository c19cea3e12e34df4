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

from tfmon.api import sockets
from tfmon.api.run_base import Interruption, Run
from tfmon.errors import EXIT_FINE, EXIT_INTERRUPTED, TfmonError
from tfmon.model import codec
from tfmon.model.event_base import Event
from tfmon.model.lane_events import PAUSED
from tfmon.model.requests import Command
from tfmon.model.session import Snapshot
from tfmon.recordings.header_lines import Known
from tfmon.system.threads import start_thread

CALM_S = 1.0
"""Delay of events, as each wake-up costs CPU time."""
AFTER_KEY_S = 10.0
"""Time after a request in which events are sent at once. Source: `ui.monitor.CALM_NS`."""
MOST_WAITING = 2_000
MOST_VIEWERS = 16
FAREWELL_S = 10.0
SLOW = ("await start", "examine", "watch gpus", "begin race", "profile lanes")
UNANNOUNCED = ("await start", "examine", "watch gpus", "profile lanes", "repeat")


class Server:
    """The viewers of a run. Thread: any."""

    def __init__(self, program: Run, interrupted: Interruption) -> None:
        self.program, self._interrupted = program, interrupted
        self.viewers: list[Connection] = []
        self.lost = False
        """Whether a viewer vanished without leaving."""
        self.unreachable = ""
        self._listening: socket.socket | None = None
        self.started = Future[str]()
        """The lines of the start, or its error."""

    def listen(self) -> None:
        """Listen for viewers, again if the socket was lost."""
        if self._listening is not None and os.path.exists(self._listening.getsockname()):  # noqa: PTH110
            return
        try:
            if self._listening is not None:
                self._listening.shutdown(socket.SHUT_RDWR)
                self._listening = None
            listening = self._listening = sockets.listen()
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
                if sockets.peer(connection)[1] == os.getuid() and len(self.viewers) < MOST_VIEWERS:
                    with contextlib.suppress(OSError):
                        self.connect(connection)
                else:
                    connection.close()

    def connect(self, connection: socket.socket, *, ends_run: bool = False) -> None:
        """Add a viewer. With `ends_run`, the run ends if the viewer vanishes."""
        known = self.program.session.snapshot()
        greeting = sockets.RunnerGreeting(
            pid=os.getpid(), scenario=known.race.scenario, recording=known.recorded, clock_ns=time.monotonic_ns()
        )
        connection.sendall(codec.encode(greeting))
        viewer = Connection(self, connection, ends_run=ends_run)
        self.viewers.append(viewer)
        start_thread("tfmon-viewer", viewer.read, viewer.drop)

    def disconnect(self, viewer: Connection) -> None:
        """Continue the run without a viewer, or end the run."""
        self.viewers.remove(viewer)
        if viewer.suspends:
            self.program.continue_lanes()
        if viewer.ends_run and not viewer.left:
            self.end(signal.SIGHUP.name)
        elif viewer.follows and not viewer.left:
            self.lost = True
            lanes = self.program.session.snapshot().lanes
            paused = tuple(lane.spec.name for lane in lanes if lane.phase == PAUSED)
            if paused and not any(other.follows for other in self.viewers):
                self.program.perform(Command("resume", paused))

    def tell(self, text: str, except_to: Connection | None = None) -> None:
        """Display a line on all viewers, except one."""
        for viewer in [*self.viewers]:
            if viewer is not except_to:
                viewer.send(sockets.Answer(lines=(text,)))

    def all_done(self) -> bool:
        """Return whether the run and all viewers have ended."""
        failed = self.started.done() and self.started.exception() is not None
        return not self.viewers and (failed or self.program.join(0))

    def close(self, exit_code: int, result: Sequence[str] = ()) -> None:
        """Send the end to all viewers."""
        if self._listening is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._listening.getsockname())  # noqa: PTH108
        leaving = [viewer for viewer in self.viewers if viewer.follows]
        for viewer in leaving:
            viewer.send(sockets.Answer(number=sockets.END, lines=tuple(result), exit_code=exit_code))
        until_s = time.monotonic() + FAREWELL_S
        for viewer in leaving:
            viewer.over.wait(max(0.0, until_s - time.monotonic()))

    def end(self, signal_name: str) -> None:
        """End the run, for a signal to a viewer."""
        if not (self.started.done() or self.program.session.snapshot().lanes):
            # The start would wait for a host or GPU.
            code = EXIT_INTERRUPTED if signal_name else EXIT_FINE
            for viewer in self.viewers:
                with contextlib.suppress(OSError):
                    viewer.socket.sendall(codec.encode(sockets.Answer(number=sockets.END, exit_code=code)))
            os._exit(code)
        if not self._interrupted.count:  # a second call would not wait
            self._interrupted.take(signal_name)


class Connection:
    """A viewer and its queue of messages. Thread: any."""

    def __init__(self, server: Server, connection: socket.socket, *, ends_run: bool) -> None:
        self.socket, self.ends_run, self._server = connection, ends_run, server
        self.follows = self.suspends = self.left = False
        self.over = threading.Event()
        self.name = f"process {sockets.peer(connection)[0]}"
        self._active_s = time.monotonic()
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._known: Snapshot | None = None
        """The snapshot that a viewer needs because it began to follow, or does not read fast enough."""
        self._waiting: list[Event | sockets.Answer] = []

    def _take(self, event: Event, known: Snapshot) -> None:
        """Queue an event of the session, which is locked."""
        with self._lock:
            if self._known is None and len(self._waiting) < MOST_WAITING:
                self._waiting.append(event)
            else:
                self._waiting = [line for line in self._waiting if isinstance(line, sockets.Answer)]
                self._known = known
        if time.monotonic() - self._active_s < AFTER_KEY_S:
            self._wake.set()

    def send(self, message: sockets.Answer) -> None:
        """Queue a message after the events."""
        with self._lock:
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
                while (line := lines.readline(sockets.LONGEST_REQUEST_BYTES)).endswith(b"\n"):
                    self._handle(codec.read(codec.parse(line), Command))
        except codec.CodecError as error:
            log(f"{self.name} sent an invalid request: {error}")
        finally:
            self.over.set()
            self._wake.set()
            self._server.disconnect(self)
            self.socket.close()

    def _handle(self, command: Command) -> None:
        self._active_s = time.monotonic()
        match command:
            case Command("follow", name=terminal):
                if not self.follows:
                    self.name += f" on {codec.clean(terminal, 40)}" if terminal else ""
                    self.follows = True
                    start_thread("tfmon-viewer", self._write, self.drop)
            case Command("leave"):
                self.left = True
            case Command("suspend"):
                self.suspends = True
                self._server.program.suspend_lanes()
            case Command("continue"):
                self.suspends = False
                self._server.program.continue_lanes()
            case Command("end run", name=signal_name):
                self._server.end(signal_name)
            case Command(action) if action in SLOW:
                start_thread("tfmon-viewer", partial(self._answer, command), log)
            case _:
                self._answer(command)

    def _answer(self, command: Command) -> None:
        number, server = command.number, self._server
        try:
            starts = command.action == "await start"
            text = server.started.result() if starts else server.program.perform(command)
            answer = sockets.Answer(number=number, lines=tuple(text.splitlines()))
        except TfmonError as error:
            answer = sockets.Answer(number=number, error=error.message, hint=error.hint, exit_code=error.exit_code)
        except Exception as error:  # noqa: BLE001 - the run continues after any error
            reason = f"{describe(command)} failed: {type(error).__name__}: {error}"
            answer = sockets.Answer(number=number, error=reason)
        if command.action not in UNANNOUNCED and not answer.error:
            server.tell(f"{self.name}: {describe(command)}", except_to=self)
        self.send(answer)

    def _write(self) -> None:
        session = self._server.program.session
        known: Snapshot | None = session.keep_journal(self._take)
        try:
            while not self.over.is_set():
                with self._lock:
                    waiting, self._waiting = self._waiting, []
                    known, self._known = self._known or known, None
                lines = [Known(known=known), *waiting] if known is not None else waiting
                self.socket.sendall(b"".join(map(codec.encode, lines)))
                known = None
                if any(isinstance(line, sockets.Answer) and line.number == sockets.END for line in waiting):
                    self.over.set()
                self._wake.wait(0 if self.over.is_set() else CALM_S)
                self._wake.clear()
        except OSError:
            pass  # the viewer is lost, and `read` ends as well
        finally:
            session.drop_journal(self._take)


def describe(command: Command) -> str:
    """Return a text such as "pause cpu"."""
    parts = [*command.lanes, command.name, *map(str, command.values)]
    return f"{command.action} {', '.join(filter(None, parts))}".strip()


def log(line: str) -> None:
    """Write a line to the runners' log."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201

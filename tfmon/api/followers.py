"""The viewers of a run in a separate process: each receives events and sends requests."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tfmon.api.program import Program
from tfmon.api.run import Interruption
from tfmon.api.sockets import (
    LONGEST_REQUEST_BYTES,
    Answer,
    Ended,
    FromViewer,
    RunnerGreeting,
    Told,
    ViewerCall,
    listen,
    peer,
)
from tfmon.errors import EXIT_INTERRUPTED, TfmonError
from tfmon.model import codec
from tfmon.model.codec import CodecError, clean
from tfmon.model.events import Event
from tfmon.model.lane_state import PAUSED
from tfmon.model.ports import ExperimentError
from tfmon.model.session import Snapshot
from tfmon.model.threads import start_thread
from tfmon.recordings.header import Known

if TYPE_CHECKING:
    from tfmon.api.sweep import SweepProgram

SLOW = ("begun", "controls.race", "examine", "profile", "profile_pair", "watch_gpus")
"""Requests that can block: each runs in its own thread."""
MOST_WAITING = 2_000
"""Events queued for a viewer; a slower viewer gets a new snapshot instead."""
TOGETHER_S = 1.0
"""Interval of sending events: a calm screen draws once a second, and each wake-up costs CPU time."""
AFTER_KEY_S = 10.0
"""For this time after a key or its start, a viewer gets each event at once. Source: `tfmon.ui.monitor.CALM_NS`."""
MOST_LINES = 500
"""Answers and lines queued for a viewer; a viewer that does not read them is disconnected."""
MOST_VIEWERS = 16
FAREWELL_S = 10.0
"""Total wait at the end for viewers that do not read."""


class Followers:
    """The viewers of the run, and their possible requests.

    Thread: any. The session can be locked when its lock is taken: do not call the session with this lock.
    """

    def __init__(self, program: Program | SweepProgram, interrupted: Interruption) -> None:
        self.lock = threading.Lock()
        self._program, self._interrupted = program, interrupted
        self._all: list[_Follower] = []
        self._connected = 0
        """Number of connections; the first viewer loads its screen before it watches."""
        self._listening: socket.socket | None = None
        self.lost = False
        self.unreachable = ""
        self._began = threading.Event()
        self._beginning: TfmonError | tuple[str, ...] = ()
        self._methods: dict[str, Callable[..., object]] = {
            "end": self._end,
            "begun": self._wait_for_begin,
            **program.requests(),
        }
        self.known = program.session.keep_journal(self._take)
        """The snapshot after the last event that was sent to followers."""

    def _take(self, event: Event, known: Snapshot) -> None:
        with self.lock:
            self.known = known
            for one in self._all:
                one.take(event)

    def look_for_viewers(self) -> None:
        """Listen for viewers, and again after the socket was lost, as when the user's last session ends."""
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
            start_thread("tfmon-listen", lambda: self._accept(listening), self._listen_again)

    def _listen_again(self, reason: str) -> None:
        self._print(reason)
        self._listening = None

    def _accept(self, listening: socket.socket) -> None:
        with contextlib.suppress(OSError), listening:  # until it is shut down
            while True:
                connection, _ = listening.accept()
                with contextlib.suppress(OSError):
                    if peer(connection)[1] == os.getuid() and self._connected < MOST_VIEWERS:
                        self.add(connection)
                        continue
                connection.close()

    def add(self, connection: socket.socket) -> _Follower:
        """Add a connected viewer."""
        with self.lock:
            recording, scenario = self.known.recording, self.known.race.scenario
        path = recording.path if recording is not None else ""
        greeting = RunnerGreeting(pid=os.getpid(), scenario=scenario, recording=path, clock_ns=time.monotonic_ns())
        connection.sendall(codec.encode(greeting))
        follower = _Follower(self, connection)
        with self.lock:
            self._connected += 1
        start_thread("tfmon-viewer", lambda: self._serve(follower), follower.drop)
        return follower

    def _serve(self, follower: _Follower) -> None:
        with follower.connection, follower.connection.makefile("rb") as lines, contextlib.suppress(OSError):
            while (line := lines.readline(LONGEST_REQUEST_BYTES)).endswith(b"\n"):
                try:
                    said: FromViewer = codec.read(codec.parse(line), FromViewer)
                except CodecError as error:
                    self._print(f"process {follower.pid} sent what cannot be read: {error}")
                    break
                if isinstance(said, ViewerCall):
                    self._call(follower, said)
                elif follower not in self._all:
                    follower.terminal = clean(said.terminal, 40)
                    with self.lock:
                        self._all.append(follower)
                    start_thread("tfmon-viewer", follower.write, follower.drop)
        with self.lock:
            watched = follower in self._all
            self._all = [one for one in self._all if one is not follower]
            self._connected -= 1
        follower.end()
        if follower.suspends:
            self._methods["continue"]()
        lanes = self._program.session.snapshot().lanes
        paused = [lane.spec.name for lane in lanes if lane.phase == PAUSED]
        if watched and not follower.left:
            self.lost = follower.lost = True
            if paused and not self._all:  # nobody has chosen to leave them so: the terminal is gone
                self._methods["controls.resume"](paused)

    def all_done(self) -> bool:
        """Return whether the race has ended or could not begin, and there are no viewers."""
        failed = isinstance(self._beginning, TfmonError)
        return not self._connected and (failed or self._program.all_over)

    def close(self, exit_code: int, result: Sequence[str] = ()) -> None:
        """Send the earlier events, the end of the run and the result of a series to all viewers."""
        if self._listening is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._listening.getsockname())  # noqa: PTH108
        with self.lock:
            leaving = list(self._all)
        for one in leaving:
            one.say(Ended(exit_code=exit_code, result=tuple(result)))
            one.end()
        until_s = time.monotonic() + FAREWELL_S
        for one in leaving:
            one.written.wait(max(0.0, until_s - time.monotonic()))
            one.drop()

    def begin(self, beginning: TfmonError | tuple[str, ...]) -> None:
        """Set the result of the start: lines to show, or why there is no race."""
        self._beginning = beginning
        self._began.set()

    def tell(self, text: str, besides: _Follower | None = None) -> None:
        """Show a line to all viewers except one."""
        with self.lock:
            for one in self._all:
                if one is not besides:
                    one.say(Told(text=text))

    def _wait_for_begin(self) -> tuple[str, ...]:
        self._began.wait()
        if isinstance(self._beginning, TfmonError):
            raise self._beginning
        return self._beginning

    def _end(self, name: str = "") -> None:
        if not self._interrupted.count:  # the second time it would be at once
            self._interrupted.take(name)

    def _call(self, follower: _Follower, call: ViewerCall) -> None:
        planned = self._began.is_set() or self._program.session.snapshot().lanes
        if call.method == "end" and not planned:
            with contextlib.suppress(OSError):
                follower.connection.sendall(codec.encode(Ended(exit_code=EXIT_INTERRUPTED)))
            os._exit(EXIT_INTERRUPTED)  # nothing runs that could be lost; what waits for a host or GPU would go on
        follower.called_s = time.monotonic()
        if call.method == "leave":
            follower.left = True
            return
        if call.method in ("suspend", "continue"):
            follower.suspends = call.method == "suspend"
        if call.method in SLOW:
            start_thread("tfmon-viewer", lambda: self._answer(follower, call), self._print)
        else:
            self._answer(follower, call)

    def _answer(self, follower: _Follower, call: ViewerCall) -> None:
        answer = Answer(number=call.number)
        try:
            value = self._methods[call.method](*call.arguments, **call.named)
            # Each method of the table returns what an answer may hold.
            answer = Answer(number=call.number, value=value)  # type: ignore[arg-type]
        except (TfmonError, ExperimentError) as error:
            hint, code = (error.hint, error.exit_code) if isinstance(error, TfmonError) else ("", 0)
            message = error.message if isinstance(error, TfmonError) else str(error)
            answer = Answer(number=call.number, error=message, hint=hint, exit_code=code)
        except Exception as error:  # noqa: BLE001 - whatever a request makes of a wrong argument
            answer = Answer(number=call.number, error=f"{call.method} failed: {type(error).__name__}: {error}")
        if call.method.startswith(("controls.", "experiments.", "end")) and not answer.error:
            self.tell(f"{follower.who}: {_words(call)}", besides=follower)
        with self.lock:
            follower.say(answer)

    @staticmethod
    def _print(line: str) -> None:
        print(line, file=sys.stderr, flush=True)  # noqa: T201 - into the log


def _words(call: ViewerCall) -> str:
    values = [", ".join(one) if isinstance(one, tuple) else str(one) for one in call.arguments if one is not None]
    return f"{call.method.rpartition('.')[2].replace('_', ' ')} {', '.join(values)}".strip()


class _Follower:
    """A viewer and its queue. Thread: `take` and `say` with the common lock; `write` its own."""

    def __init__(self, followers: Followers, connection: socket.socket) -> None:
        self.connection, self._followers = connection, followers
        self.pid = peer(connection)[0]
        self.terminal = ""
        self.suspends = self.left = self.lost = False
        self.written = threading.Event()
        self._ready, self._urgent, self._ends = threading.Event(), threading.Event(), False
        self.called_s = time.monotonic()
        self._events: deque[Event] = deque()
        self._lines: deque[Answer | Told | Ended] = deque()
        self._behind = True
        """Whether it gets a snapshot next, without the events before it."""
        self._urgent.set()
        self._ready.set()

    @property
    def who(self) -> str:
        return f"process {self.pid}" + (f" on {self.terminal}" if self.terminal else "")

    def take(self, event: Event) -> None:
        if self._behind:
            return
        self._events.append(event)
        if len(self._events) > MOST_WAITING:
            self._events.clear()
            self._behind = True
        self._ready.set()

    def say(self, message: Answer | Told | Ended) -> None:
        if len(self._lines) < MOST_LINES:
            self._lines.append(message)
        else:
            self.drop()
        self._urgent.set()
        self._ready.set()

    def drop(self, reason: str = "") -> None:
        if reason:
            print(reason, file=sys.stderr, flush=True)  # noqa: T201 - into the log
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        self._ends = True
        self._urgent.set()
        self._ready.set()

    def write(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                if time.monotonic() - self.called_s > AFTER_KEY_S:
                    self._urgent.wait(TOGETHER_S)  # and not for the first event: each wake-up costs CPU time
                else:
                    self._ready.wait()
                self._ready.clear()
                self._urgent.clear()
                ends = self._ends
                with self._followers.lock:
                    known = self._followers.known if self._behind else None
                    events, self._events = self._events, deque()
                    lines, self._lines = self._lines, deque()
                    self._behind = False
                if known is not None:
                    self.connection.sendall(codec.encode(Known(known=known)))
                if events or lines:
                    self.connection.sendall(b"".join(map(codec.encode, (*events, *lines))))
                if ends:
                    break
        self.written.set()

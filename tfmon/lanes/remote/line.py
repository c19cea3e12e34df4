"""What goes over one link: the processes of lanes there, the questions and the readings."""

from __future__ import annotations

import itertools
import json
import queue
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswer
from dataclasses import replace
from functools import partial
from typing import Any

from tfmon.errors import TfmonError
from tfmon.lanes.process import LaneProcess, Sink
from tfmon.lanes.remote.frames import ENDED, Frame, Kind
from tfmon.lanes.remote.link import CLOSE_S, Link
from tfmon.lanes.remote.questions import decode
from tfmon.lanes.remote.trouble import HostError
from tfmon.lanes.remote.wire import Wire
from tfmon.model.codec import CodecError, clean
from tfmon.model.events import Event, HostLost
from tfmon.model.gpu import GpuSample
from tfmon.model.lane_events import FromLane, LaneFailed, Profiled, ProfileFailed
from tfmon.model.lane_state import HOST_LOST
from tfmon.model.requests import Assign, Request, TakeProfile
from tfmon.model.threads import start_thread


class RemoteProcess(LaneProcess):
    """A child of an agent. Thread: its events, the connection's delivery thread; the rest any."""

    stack_poll_s = 0.3

    def __init__(
        self, lane: str, number: int, scenario: str, link: Link, sink: Sink, ended: Callable[[], None]
    ) -> None:
        super().__init__(lane, sink, self._here)
        self.number = number
        self.pid = 0  # until the agent has started it; nobody is told of it before
        self._scenario = scenario
        self._link = link
        self._note_end = ended
        self._profiles: dict[str, str] = {}

    def send(self, request: Request) -> bool:
        """Send a request with the paths of that machine; return False when nobody reads it."""
        if isinstance(request, Assign) and self._scenario:
            request = replace(request, scenario=self._scenario)
        elif isinstance(request, TakeProfile):
            there = f"{self._link.folder}/profiles/{self.number}-{len(self._profiles) + 1}"
            self._profiles[there] = request.folder
            request = replace(request, folder=there)
        return super().send(request)

    def write(self, data: bytes) -> bool:
        """Put it on the link; return False when that is lost, or the child has ended."""
        if self.ended or self._link.lost:
            return False
        self._link.outbox.put(Kind.REQUEST, self.number, data)
        return True

    def kill(self, number: signal.Signals, *, alone: bool = False) -> None:
        """Make the agent signal the child and its process group, or the child alone."""
        if not self.ended:
            self._link.outbox.put(Kind.SIGNAL, self.number, bytes([number, alone]))

    def suspend_with_monitor(self) -> None:
        """Do nothing: the connection suspends all lanes of the host."""

    def continue_with_monitor(self) -> None:
        """Do nothing: the connection continues all lanes of the host."""

    def end(self, code: int, at_ns: int) -> None:
        """Report that the child has ended, at a stamp of that machine."""
        self._tell_end(code, self._link.clock.here(at_ns))
        self._note_end()

    def lose(self, why: TfmonError, at_ns: int) -> None:
        """Report that the connection is lost, and the child with it."""
        if self.ended:
            return
        if not self.end_requested:
            failed = LaneFailed(at_ns=at_ns, lane=self.lane, kind=HOST_LOST, message=why.message, hint=why.hint)
            self._tell(failed)
        self._tell_end(None, at_ns)
        self._note_end()

    def _here(self, event: FromLane) -> FromLane:
        """Return an event with the stamp, and the folder of a profile, of this machine."""
        if isinstance(event, Profiled | ProfileFailed):
            event = replace(event, folder=self._profiles.get(event.folder, event.folder))
        return replace(event, at_ns=self._link.clock.here(event.at_ns))


MOST_UNTOLD = 2_000
"""No more is read while this many events wait: memory is bounded, and the agent sees a slow link."""
TELL_EVERY_S = 0.25
HOLD_S = 0.3


class HostLine:
    """The traffic of one link, which it creates.

    A slow listener delays neither heartbeat nor answer: `_tell…` and `_end_process` run in another thread,
    `_take`, `_crowded` and `_end` in the link's.

    Thread: any; `hold` and `go_on` also from a signal's handler.
    """

    def __init__(self, wire: Wire, tell: Callable[[Event], None]) -> None:
        self.host, self._called = wire.host.name, wire.host.called
        self.over = threading.Event()
        """Set once the link has ended and all events are delivered."""
        self._tell_of_host = tell
        self._closing = False
        self.numbers = itertools.count(1)
        self._questions: dict[int, Future[Frame]] = {}
        self._processes: dict[int, RemoteProcess] = {}
        self.works: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.link = Link(
            wire, self._take, self._crowded, lambda measured: self.works.put(lambda: tell(measured)), self._end
        )
        start_thread(f"tfmon-tell-{self.host}", self._tell_all, self._end_untold)
        self.link.start()

    def begin(self, process: RemoteProcess, payload: dict[str, Any], patience_s: float) -> None:
        """Make the agent start a process; raises OSError when it did not start."""
        self._processes[process.number] = process
        try:
            answer = self._call(process.number, Kind.START, json.dumps(payload).encode(), patience_s)
            if "error" in answer:
                raise OSError(answer["number"], clean(answer["error"], 200))
            process.pid = answer["pid"]
        except HostError as error:
            raise ConnectionError(str(error)) from error
        finally:
            if not process.pid:
                self._processes.pop(process.number, None)

    def ask(self, question: str, arguments: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Return the agent's answer; raises TfmonError if it has none."""
        payload = json.dumps({"question": question, "arguments": arguments}).encode()
        return self._call(next(self.numbers), Kind.ASK, payload, timeout_s)

    def hold(self) -> None:
        """Make the agent suspend its lanes: this process is about to be stopped."""
        ticket = self.link.outbox.put(Kind.HOLD)
        until_s = time.monotonic() + HOLD_S
        while self.link.outbox.sent < ticket and not self.link.lost and time.monotonic() < until_s:
            time.sleep(0.002)

    def go_on(self) -> None:
        """End `hold`."""
        self.link.outbox.put(Kind.GO_ON)

    def close(self) -> None:
        """End the agent and its processes; return when all events are delivered."""
        self._closing = True
        self.link.close()
        self.over.wait(CLOSE_S + 1.0)

    def _call(self, number: int, kind: Kind, sent: bytes, timeout_s: float) -> dict[str, Any]:
        """Return the agent's answer to a frame; raises TfmonError without one."""
        answered: Future[Frame] = Future()
        self._questions[number] = answered
        try:
            if self.link.lost:
                raise self.loss()
            self.link.outbox.put(kind, number, sent)
            frame = answered.result(timeout_s)
        except NoAnswer:
            raise HostError(f"{self.host} did not answer within {timeout_s:.0f} s") from None
        finally:
            self._questions.pop(number, None)
        answer = json.loads(frame.payload)
        if frame.kind == Kind.ANSWER and "error" in answer:
            hint = clean(str(answer.get("hint", "")), 400)
            raise HostError(f"{self.host}: {clean(str(answer['error']), 400)}", hint)
        return dict(answer)

    def loss(self) -> HostError:
        """Return the error of a link that is lost."""
        return self.link.bridge_error or HostError(f"{self._called} is lost: {self.link.lost}")

    def _take(self, frame: Frame) -> None:
        process = self._processes.get(frame.number)
        match frame.kind:
            case Kind.METRICS if process is not None:
                self.works.put(lambda: process.metrics.take(frame.payload))
            case Kind.OUTPUT if process is not None:
                self.works.put(lambda: process.output.take(frame.payload))
            case Kind.DROPPED if process is not None:
                self.works.put(lambda: process.output.drop(int(frame.payload)))
            case Kind.ENDED if process is not None:
                code, ended_ns = ENDED.unpack(frame.payload)
                self.works.put(lambda: self._end_process(process, code, ended_ns))
            case Kind.STARTED | Kind.ANSWER:
                answered = self._questions.get(frame.number)
                if answered is not None and not answered.done():
                    answered.set_result(frame)
            case Kind.EVENT:
                self.works.put(lambda: self._tell_reading(frame.payload))

    def _crowded(self) -> bool:
        """Return whether too many events wait; an answer is read nevertheless, because a caller waits for it."""
        return self.works.qsize() > MOST_UNTOLD and not self._questions

    def _end(self, at_ns: int) -> None:
        for answered in list(self._questions.values()):
            if not answered.done():
                answered.set_exception(self.loss())
        if not self._closing:
            lost = HostLost(at_ns=at_ns, host=self.host, reason=self.link.lost)
            self.works.put(lambda: self._tell_of_host(lost))
        for process in list(self._processes.values()):
            self.works.put(partial(process.lose, self.loss(), at_ns))
        self.works.put(None)

    def _tell_all(self) -> None:
        told_s = time.monotonic()
        while True:
            waits = any(process.output.waits for process in list(self._processes.values()))
            try:
                work = self.works.get(timeout=TELL_EVERY_S if waits else None)
            except queue.Empty:
                pass
            else:
                if work is None:
                    break
                work()
            if waits and time.monotonic() - told_s >= TELL_EVERY_S:
                told_s = time.monotonic()
                for process in list(self._processes.values()):
                    process.tell_output()
        self.over.set()

    def _end_untold(self, reason: str) -> None:
        """End the connection after an error in the delivery, and deliver the rest."""
        self.link.close(reason)
        try:
            self._tell_all()
        finally:
            self.over.set()

    def _end_process(self, process: RemoteProcess, code: int, at_ns: int) -> None:
        process.end(code, at_ns)
        self._processes.pop(process.number, None)

    def _tell_reading(self, line: bytes) -> None:
        try:
            event = decode(line, self.host)
        except CodecError:  # a newer agent may say more
            return
        here = self.link.clock.here
        moved = event.on_clock(here) if isinstance(event, GpuSample) else replace(event, at_ns=here(event.at_ns))
        self._tell_of_host(moved)

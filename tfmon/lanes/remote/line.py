"""One connection that was made, until it ends: the lanes, questions and readings it carries, and its clock."""

from __future__ import annotations

import itertools
import json
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tfmon.lanes.remote.clock import HostClock, Ping
from tfmon.lanes.remote.frames import ENDED, PONG, STAMP, Frame, Kind
from tfmon.lanes.remote.loop import CLOSE_S, FrameLoop
from tfmon.lanes.remote.remote import RemoteProcess
from tfmon.lanes.remote.trouble import HostError
from tfmon.lanes.remote.wire import Greeting, Wire
from tfmon.model.codec import CodecError, clean
from tfmon.model.events import Event, HostLost, LinkMeasured
from tfmon.model.readings import NOT_READ, GpuSample, Missing, Reading
from tfmon.model.threads import start_thread

SETTLE_BEATS = 10
"""How often the clock is set by the pings, in beats of a second."""
FIRST_PINGS = 20
FIRST_PINGS_S = 3.0
MOST_UNTOLD = 2_000
"""No more is read while so much waits to be told: memory is bounded, and the agent sees a slow link."""
TELL_EVERY_S = 0.25
HOLD_S = 0.3
NO_MEMORY = Missing("that system does not say how much memory a process has")


@dataclass(slots=True)
class _Question:
    """A question that waits for its answer."""

    answered: threading.Event = field(default_factory=threading.Event)
    answer: bytes = b""
    kind: int = 0
    """What the answer came as."""


class Line:
    """What goes over one connection. It is the `Link` of the processes that it carries.

    Events are told in a thread of their own, so that a slow listener delays neither heartbeat nor answer.
    Thread: any; `hold` and `go_on` also from a signal's handler.
    """

    def __init__(self, wire: Wire, greeting: Greeting, rest: bytes, tell: Callable[[Event], None]) -> None:
        """Carry frames over a wire whose agent is ready.

        Args:
            wire: The wire.
            greeting: What the agent said of itself.
            rest: What came behind that.
            tell: Takes the events about the host.
        """
        self.host = wire.host.name
        self.folder = greeting.folder
        self.lost = ""
        self.over = threading.Event()
        """Set once the connection has ended and all is told."""
        self._tell_of_host = tell
        self._closing = False
        self._last_word = ""
        self._numbers = itertools.count(1)
        self._questions: dict[int, _Question] = {}
        self._processes: dict[int, RemoteProcess] = {}
        self._clock = HostClock()
        self._beats = 0
        self._ponged = threading.Event()
        self._agent: tuple[int, int, int] | None = None
        """The agent's clock, CPU time and memory at the last pong."""
        self._agent_before: tuple[int, int, int] | None = None
        self._works: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._loop = FrameLoop(wire, rest, self._take, self._beat, self._crowded, self._end)
        start_thread(f"tfmon-tell-{self.host}", self._tell_all, self._end_untold)
        self._loop.start()

    # ---------------------------------------------------------------- for the processes

    def put(self, kind: Kind, number: int = 0, payload: bytes = b"") -> int:
        """Send a frame, and return its ticket."""
        return self._loop.put(kind, number, payload)

    def here(self, there_ns: int) -> int:
        """Return the monitor's stamp for one from there."""
        return self._clock.here(there_ns)

    def deliver(self, work: Callable[[], None]) -> None:
        """Do something in the thread that tells events, after what came before."""
        self._works.put(work)

    # ---------------------------------------------------------------- for the connection

    def next_number(self) -> int:
        """Return a number that no lane and no question has."""
        return next(self._numbers)

    def begin(self, process: RemoteProcess, words: dict[str, Any], patience_s: float) -> None:
        """Have the agent start a process; raises OSError when it did not start."""
        self._processes[process.number] = process
        try:
            answer = json.loads(self._call(process.number, Kind.START, json.dumps(words).encode(), patience_s))
            if "error" in answer:
                raise OSError(answer["number"], clean(answer["error"], 200))
            process.pid = answer["pid"]
        except HostError as error:
            raise ConnectionError(str(error)) from error
        finally:
            if not process.pid:
                self._processes.pop(process.number, None)

    def ask(self, question: str, words: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Return the agent's answer; raises TfmonError where it has none."""
        payload = json.dumps({"question": question, "words": words}).encode()
        return dict(json.loads(self._call(self.next_number(), Kind.ASK, payload, timeout_s)))

    def measure(self) -> None:
        """Set the clock by some pings, one after another, and tell of the link."""
        until_s = time.monotonic() + FIRST_PINGS_S
        for _ in range(FIRST_PINGS):
            self._ponged.clear()
            self._ping()
            if not self._ponged.wait(max(0.0, until_s - time.monotonic())) or self.lost:
                break
        self._settle()

    def hold(self) -> None:
        """Have the agent suspend its lanes: this process is about to be stopped."""
        ticket = self.put(Kind.HOLD)
        until_s = time.monotonic() + HOLD_S
        while self._loop.sent < ticket and not self.lost and time.monotonic() < until_s:
            time.sleep(0.002)

    def go_on(self) -> None:
        """End `hold`."""
        self.put(Kind.GO_ON)

    def close(self) -> None:
        """End the agent, and with it what still runs there; return when all is told."""
        self._closing = True
        self._loop.close()
        self.over.wait(CLOSE_S + 1.0)

    def _call(self, number: int, kind: Kind, sent: bytes, timeout_s: float) -> bytes:
        question = self._questions[number] = _Question()
        try:
            if not self.lost:
                self.put(kind, number, sent)
                if not question.answered.wait(timeout_s):
                    raise HostError(f"{self.host} did not answer within {timeout_s:.0f} s")
            if self.lost:
                raise HostError(f"{self.host} is lost: {self.lost}")
            if question.kind == Kind.ANSWER and "error" in (answer := json.loads(question.answer)):
                hint = clean(str(answer.get("hint", "")), 400)
                raise HostError(f"{self.host}: {clean(str(answer['error']), 400)}", hint)
            return question.answer
        finally:
            self._questions.pop(number, None)

    # ---------------------------------------------------------------- what comes in, in the loop's thread

    def _take(self, frame: Frame, at_ns: int) -> None:
        process = self._processes.get(frame.number)
        match frame.kind:
            case Kind.METRICS if process is not None:
                self.deliver(lambda: process.take_metrics(frame.payload))
            case Kind.OUTPUT if process is not None:
                self.deliver(lambda: process.take_output(frame.payload))
            case Kind.DROPPED if process is not None:
                self.deliver(lambda: process.drop_output(int(frame.payload)))
            case Kind.ENDED if process is not None:
                code, ended_ns = ENDED.unpack(frame.payload)
                self.deliver(lambda: self._end_process(process, code, ended_ns))
            case Kind.STARTED | Kind.ANSWER:
                self._take_answer(frame)
            case Kind.PONGED:
                sent_ns, there_ns, cpu_ns, memory_bytes = PONG.unpack(frame.payload)
                self._clock.take(Ping(sent_ns, there_ns, at_ns))
                self._agent = there_ns, cpu_ns, memory_bytes
                self._ponged.set()
            case Kind.EVENT:
                self.deliver(lambda: self._tell_reading(frame.payload))
            case Kind.LAST_WORD:
                self._last_word = self._last_word or clean(frame.payload.decode(errors="replace"), 400)

    def _take_answer(self, frame: Frame) -> None:
        question = self._questions.get(frame.number)
        if question is not None:
            question.answer, question.kind = frame.payload, frame.kind
            question.answered.set()

    def _crowded(self) -> bool:
        """Return whether too much waits to be told; an answer is read all the same: someone waits."""
        return self._works.qsize() > MOST_UNTOLD and not self._questions

    def _beat(self) -> None:
        self._ping()
        self._beats += 1
        if self._beats % SETTLE_BEATS == 0:
            self._settle()

    def _ping(self) -> None:
        self.put(Kind.PING, 0, STAMP.pack(time.monotonic_ns()))

    def _settle(self) -> None:
        if not self._clock.settle():
            return
        cpu_pct: Reading = NOT_READ
        memory: Reading = NO_MEMORY
        if self._agent is not None:
            there_ns, cpu_ns, memory_bytes = self._agent
            if memory_bytes >= 0:
                memory = memory_bytes
            if self._agent_before is not None and there_ns > self._agent_before[0]:
                cpu_pct = 100 * (cpu_ns - self._agent_before[1]) / (there_ns - self._agent_before[0])
            self._agent_before = self._agent
        measured = LinkMeasured(
            at_ns=time.monotonic_ns(),
            host=self.host,
            round_trip_ns=self._clock.round_trip_ns,
            offset_ns=self._clock.offset_ns,
            error_ns=self._clock.error_ns,
            agent_cpu_pct=cpu_pct,
            agent_bytes=memory,
        )
        self.deliver(lambda: self._tell_of_host(measured))

    def _end(self, reason: str) -> None:
        at_ns = time.monotonic_ns()
        self.lost = " ".join(clean(self._last_word or reason, 400).split()) or "the connection was closed"
        for question in list(self._questions.values()):
            question.answered.set()
        if not self._closing:
            lost = HostLost(at_ns=at_ns, host=self.host, reason=self.lost)
            self.deliver(lambda: self._tell_of_host(lost))
        for process in list(self._processes.values()):
            self.deliver(partial(process.lose, f"{self.host} is lost: {self.lost}", at_ns))
        self._works.put(None)

    # ---------------------------------------------------------------- what is told, in the teller's thread

    def _tell_all(self) -> None:
        told_s = time.monotonic()
        while True:
            waits = any(process.output_waits for process in list(self._processes.values()))
            try:
                work = self._works.get(timeout=TELL_EVERY_S if waits else None)
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
        """End the connection, and tell the rest: what was to be told has raised an error."""
        self._last_word = reason
        self._loop.close()
        try:
            self._tell_all()
        finally:
            self.over.set()

    def _end_process(self, process: RemoteProcess, code: int, at_ns: int) -> None:
        process.end(code, at_ns)
        self._processes.pop(process.number, None)

    def _tell_reading(self, line: bytes) -> None:
        from tfmon.lanes.remote.readings import decode

        try:
            event = decode(line, self.host)
        except CodecError:  # a newer agent may say more
            return
        event = replace(event, at_ns=self.here(event.at_ns))
        if isinstance(event, GpuSample):
            event = replace(event, faults=tuple(replace(one, at_ns=self.here(one.at_ns)) for one in event.faults))
        self._tell_of_host(event)

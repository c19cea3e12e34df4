"""An established connection to an agent, and its lanes."""

from __future__ import annotations

import itertools
import os
import queue
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswer
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from tfmon.errors import TfmonError
from tfmon.lanes.lane_process import LaneProcess, Sink
from tfmon.lanes.pipes import TAIL_LINES
from tfmon.lanes.remote.clock import HostClock
from tfmon.lanes.remote.link_lines import LineReader, Sender
from tfmon.lanes.remote.start_program import Wire
from tfmon.lanes.remote.trouble import HostError, of_bridge, why_ended
from tfmon.model.codec import CodecError, clean, encode_message, read
from tfmon.model.events import BadLine, Event, HostLost, LaneEnded, LanePrinted, LinkMeasured
from tfmon.model.gpu_samples import GpuSample
from tfmon.model.lane_events import FromLane, LaneFailed, Profiled, ProfileFailed
from tfmon.model.lane_state import HOST_LOST
from tfmon.model.lane_texts import without_chatter
from tfmon.model.readings import NOT_READ, HostSample, Missing, Reading, TreeSample
from tfmon.model.requests import Assign, Request, TakeProfile
from tfmon.system.threads import start_thread

BEAT_S = 1.0
SILENCE_S = 5.0
"""The agent answers heartbeats."""
LATE_S = 2.0
"""A loop that is this late was stopped itself."""
CLOSE_S = 2.0
MOST_UNTOLD = 2_000
"""No more is read while this many events wait, so the agent sees a slow link."""
CROWDED_S = 0.02
SETTLE_BEATS = 10
FIRST_PINGS, FIRST_PINGS_S = 20, 3.0
HOLD_S = 0.3

LaneEvent: TypeAlias = FromLane | LaneEnded | LanePrinted | BadLine
Sample: TypeAlias = TreeSample | HostSample | GpuSample


class RemoteProcess(LaneProcess):
    """A child of an agent. Thread: `take` and `lose`, the link's delivery thread; the rest any."""

    def __init__(
        self,
        lane: str,
        number: int,
        link: Link,
        sink: Sink,
        ended: Callable[[], None],
        *,
        grace_s: float | None,
        scenario: str,
        echo: Callable[[bytes], object] | None,
    ) -> None:
        super().__init__(lane, sink, grace_s)
        self.number = number
        self.pid = 0
        self._link = link
        self._note_end = ended
        self._scenario = scenario
        self._echo = echo
        self._profiles: dict[str, str] = {}
        self._printed: deque[str] = deque(maxlen=TAIL_LINES)

    def send(self, request: Request) -> bool:
        """Send a request with the host's paths."""
        if self.ended or self._link.lost:
            return False
        if isinstance(request, Assign) and self._scenario:
            request = replace(request, scenario=self._scenario)
        elif isinstance(request, TakeProfile):
            there = f"{self._link.folder}/profiles/{self.number}-{len(self._profiles) + 1}"
            self._profiles[there] = request.folder
            request = replace(request, folder=there)
        self._link.sender.send(do="request", lane=self.number, line=encode_message(request).decode())
        return True

    def _control(self, method: str, *arguments: int) -> None:
        if not self.ended:
            self._link.sender.send(do="control", lane=self.number, method=method, arguments=arguments)

    def kill(self, number: int) -> None:
        """Signal the process group."""
        self._control("kill", number)

    def suspend(self) -> None:
        """Suspend the child."""
        self._control("suspend")

    def continue_(self) -> None:
        """Continue a suspended child."""
        self._control("continue_")

    def request_end(self) -> None:
        """Request the end, or send SIGINT to a user's command."""
        self.end_requested = True
        self._control("request_end")

    def ask_stacks(self) -> None:
        """Report the stacks as an event."""
        self._control("ask_stacks")

    def take(self, message: dict[str, Any]) -> None:
        """Report an event, or echo output."""
        if "output" in message:
            if self._echo is not None:
                self._echo(str(message["output"]).encode("latin-1", "replace"))
            return
        problem = ""
        try:
            event: LaneEvent = read(message.get("event"), LaneEvent)
            at_ns = min(self._link.clock.here(event.at_ns), time.monotonic_ns())
            self._report(replace(event, lane=self.lane, at_ns=at_ns))
        except CodecError as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001 - one thread delivers all events; one must not end it
            problem = f"tfmon could not take in an event: {type(error).__name__}: {error}"
        if problem:
            self._tell(BadLine(lane=self.lane, at_ns=time.monotonic_ns(), problem=clean(problem, 200)))

    def _report(self, event: LaneEvent) -> None:
        if isinstance(event, Profiled | ProfileFailed):
            event = replace(event, folder=self._profiles.get(event.folder, event.folder))
        elif isinstance(event, LanePrinted):
            self._printed.extend(event.lines)
        elif isinstance(event, LaneEnded):
            event = replace(event, requested=self.end_requested)
        self._tell(event)
        if isinstance(event, LaneEnded):
            self.ended = True
            self._note_end()

    def lose(self, why: TfmonError, at_ns: int) -> None:
        """Report a lost connection."""
        if self.ended:
            return
        if not self.end_requested:
            self._tell(LaneFailed(at_ns=at_ns, lane=self.lane, kind=HOST_LOST, message=why.message, hint=why.hint))
        tail = tuple(without_chatter(tuple(self._printed)))
        self._report(
            LaneEnded(lane=self.lane, at_ns=at_ns, exit_code=None, signal=None, requested=False, output_tail=tail)
        )


class Link:
    """Carries messages until it ends.

    A thread delivers events, so that a slow listener does not delay heartbeats and answers. Thread: any; `hold`
    and `go_on` also from a signal's handler.
    """

    def __init__(self, wire: Wire, tell: Callable[[Event], None]) -> None:
        self.host = wire.host.name
        self.folder = wire.greeting.folder
        self.lost = ""
        self.clock = HostClock()
        self.over = threading.Event()
        self.numbers = itertools.count(1)
        self.works: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._wire = wire
        self._called = wire.host.called
        self._tell = tell
        self._bridge_error: HostError | None = None
        self._lines = LineReader()
        self._calls: dict[int, Future[dict[str, Any]]] = {}
        self._processes: dict[int, RemoteProcess] = {}
        self._closing = False
        self._close_s = 0.0
        self._last_word = ""
        self._ponged = threading.Event()
        self._agent = self._agent_before = (0, 0, -1)
        """Clock, CPU time and memory of the agent."""
        self.sender = Sender(os.dup(wire.connection.fileno()), partial(wire.connection.shutdown, socket.SHUT_WR))
        start_thread(f"tfmon-tell-{self.host}", self._deliver, self._end_untold)
        start_thread(f"tfmon-host-{self.host}", lambda: self._end(self._serve()), self._end)

    def call(self, do: str, timeout_s: float, **arguments: object) -> dict[str, Any]:
        """Return the agent's answer; raises TfmonError."""
        number, answered = next(self.numbers), Future[dict[str, Any]]()
        self._calls[number] = answered
        try:
            if self.lost:
                raise self.loss()
            self.sender.send(do=do, call=number, **arguments)
            answer = answered.result(timeout_s)
        except NoAnswer:
            raise HostError(f"{self.host} did not answer within {timeout_s:.0f} s") from None
        finally:
            self._calls.pop(number, None)
        if "error" in answer:
            hint = clean(str(answer.get("hint", "")), 400)
            raise HostError(f"{self.host}: {clean(str(answer['error']), 400)}", hint)
        return answer

    def begin(self, process: RemoteProcess, payload: dict[str, Any], patience_s: float) -> None:
        """Start a process; raises OSError, or HostError if the link is lost."""
        running = {number: other for number, other in self._processes.items() if not other.ended}
        self._processes = {**running, process.number: process}
        try:
            answer = self.call("start", patience_s, number=process.number, payload=payload)
            if "failed" in answer:
                raise OSError(answer["errno"], clean(answer["failed"], 200))
            process.pid = answer["pid"]
        finally:
            if not process.pid:
                self._processes.pop(process.number, None)

    def hold(self) -> None:
        """Suspend the lanes."""
        self.sender.send(do="hold")
        self.sender.flush(HOLD_S)

    def go_on(self) -> None:
        """End `hold`."""
        self.sender.send(do="go_on")

    def measure(self) -> None:
        """Set the clock by some pings."""
        until_s = time.monotonic() + FIRST_PINGS_S
        for _ in range(FIRST_PINGS):
            self._ponged.clear()
            self._ping()
            if not self._ponged.wait(max(0.0, until_s - time.monotonic())) or self.lost:
                break
        self._settle()

    def break_off(self, reason: str) -> None:
        """End the link. Thread: any."""
        self._last_word = self._last_word or reason
        self._close_s = self._close_s or time.monotonic() + CLOSE_S
        self.sender.close()

    def close(self) -> None:
        """End the agent, and deliver all events."""
        self._closing = True
        self.break_off("")
        self.over.wait(CLOSE_S + 1.0)

    def loss(self) -> HostError:
        """Return the error of a lost link."""
        return self._bridge_error or HostError(f"{self._called} is lost: {self.lost}")

    def _serve(self) -> str:
        wire, beats, beat_s, heard_s = self._wire, 0, 0.0, time.monotonic()
        self._take(wire.received)
        while True:
            # A caller waits for an answer, even if many events wait.
            crowded = self.works.qsize() > MOST_UNTOLD and not self._calls
            before_s = time.monotonic()
            wait_s = CROWDED_S if crowded else max(0.0, min(beat_s, self._close_s or beat_s) - before_s)
            chunk = None if crowded else wire.receive(wait_s)
            if crowded:
                time.sleep(wait_s)
            now_s = time.monotonic()
            if chunk or crowded or now_s - before_s > wait_s + LATE_S:
                heard_s = now_s
            if chunk:
                self._take(chunk)
            elif chunk == b"":
                code, said = wire.exit_code(), wire.said()
                self._bridge_error = of_bridge(said) if wire.host.ray is not None else None
                return self._bridge_error.message if self._bridge_error else why_ended(wire.host, code, said)
            if now_s >= beat_s:
                beat_s, beats = now_s + BEAT_S, beats + 1
                self._ping()
                if beats % SETTLE_BEATS == 0:
                    self._settle()
            if self._close_s and now_s > self._close_s:
                return "it did not end"
            if now_s - heard_s > SILENCE_S:
                return f"nothing was heard for {SILENCE_S:.0f} s"

    def _take(self, chunk: bytes) -> None:
        at_ns = time.monotonic_ns()
        for message in self._lines.take(chunk):
            match message:
                case {"number": number}:
                    if number in self._processes:
                        self.works.put(partial(self._processes[number].take, message))
                case {"event": sample}:
                    self.works.put(partial(self._tell_sample, sample))
                case {"call": number}:
                    answered = self._calls.get(number)
                    if answered is not None and not answered.done():
                        answered.set_result(message)
                case {"beat": sent_ns, "at_ns": there_ns, "cpu_ns": cpu_ns, "memory_bytes": memory_bytes}:
                    self.clock.take(sent_ns, there_ns, at_ns)
                    self._agent = there_ns, cpu_ns, memory_bytes
                    self._ponged.set()
                case {"last": reason}:
                    self._last_word = self._last_word or str(reason)

    def _ping(self) -> None:
        self.sender.send(do="beat", sent_ns=time.monotonic_ns())

    def _settle(self) -> None:
        if not self.clock.settle():
            return
        (there_ns, cpu_ns, memory_bytes), before = self._agent, self._agent_before
        self._agent_before = self._agent
        cpu_pct: Reading = NOT_READ
        if before[0] and there_ns > before[0]:
            cpu_pct = 100 * (cpu_ns - before[1]) / (there_ns - before[0])
        unknown = Missing("that system does not say how much memory a process has")
        measured = LinkMeasured(
            at_ns=time.monotonic_ns(),
            host=self.host,
            round_trip_ns=self.clock.round_trip_ns,
            offset_ns=self.clock.offset_ns,
            error_ns=self.clock.error_ns,
            agent_cpu_pct=cpu_pct,
            agent_bytes=memory_bytes if memory_bytes >= 0 else unknown,
        )
        self.works.put(lambda: self._tell(measured))

    def _end(self, reason: str) -> None:
        self._wire.kill()
        why = clean(self.sender.failure or self._last_word or reason, 400)
        self.lost = " ".join(why.split()) or "the connection was closed"
        self._ponged.set()
        self.sender.close()
        at_ns = time.monotonic_ns()
        for answered in list(self._calls.values()):
            if not answered.done():
                answered.set_exception(self.loss())
        if not self._closing:
            lost = HostLost(at_ns=at_ns, host=self.host, reason=self.lost)
            self.works.put(lambda: self._tell(lost))
        for process in list(self._processes.values()):
            self.works.put(partial(process.lose, self.loss(), at_ns))
        self.works.put(None)

    def _deliver(self) -> None:
        while (work := self.works.get()) is not None:
            work()
        self.over.set()

    def _end_untold(self, reason: str) -> None:
        self.break_off(reason)
        try:
            self._deliver()
        finally:
            self.over.set()

    def _tell_sample(self, sample: object) -> None:
        try:
            event: Sample = read(sample, Sample, strict=False)
        except CodecError:
            return
        here = self.clock.here
        if isinstance(event, TreeSample):
            self._tell(replace(event, at_ns=here(event.at_ns)))
            return
        event = event.on_clock(here) if isinstance(event, GpuSample) else replace(event, at_ns=here(event.at_ns))
        self._tell(replace(event, host=self.host))

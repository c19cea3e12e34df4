"""An established connection to an agent."""

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
from tfmon.lanes.lane_process import LaneProcess, Sink
from tfmon.lanes.remote.clock import HostClock, Ping
from tfmon.lanes.remote.frames import MESSAGES, FrameReader, Sender
from tfmon.lanes.remote.questions import decode
from tfmon.lanes.remote.start_program import Wire
from tfmon.lanes.remote.trouble import HostError, of_bridge, why_ended
from tfmon.model.codec import CodecError, clean
from tfmon.model.events import Event, HostLost, LinkMeasured
from tfmon.model.gpu_samples import GpuSample
from tfmon.model.lane_events import FromLane, LaneFailed, Profiled, ProfileFailed
from tfmon.model.lane_state import HOST_LOST
from tfmon.model.readings import NOT_READ, Missing, Reading
from tfmon.model.requests import Assign, Request, TakeProfile
from tfmon.system.threads import start_thread

BEAT_S = 1.0
SILENCE_S = 5.0
"""The agent answers heartbeats."""
LATE_S = 2.0
"""A loop that is this late was stopped itself."""
CLOSE_S = 2.0
MOST_UNTOLD = 2_000
"""No more is read while this many frames wait, so the agent sees a slow link."""
CROWDED_S = 0.02
SETTLE_BEATS = 10
FIRST_PINGS, FIRST_PINGS_S = 20, 3.0
TELL_EVERY_S = 0.25
HOLD_S = 0.3


class RemoteProcess(LaneProcess):
    """A child of an agent. Thread: its events, the link's delivery thread; the rest any."""

    stack_poll_s = 0.8
    """The agent passes on output twice a second."""

    def __init__(
        self, lane: str, number: int, scenario: str, link: Link, sink: Sink, ended: Callable[[], None]
    ) -> None:
        super().__init__(lane, sink, self._here)
        self.number = number
        self.pid = 0
        self._scenario = scenario
        self._link = link
        self._note_end = ended
        self._profiles: dict[str, str] = {}

    def send(self, request: Request) -> bool:
        """Send a request with the host's paths."""
        if isinstance(request, Assign) and self._scenario:
            request = replace(request, scenario=self._scenario)
        elif isinstance(request, TakeProfile):
            there = f"{self._link.folder}/profiles/{self.number}-{len(self._profiles) + 1}"
            self._profiles[there] = request.folder
            request = replace(request, folder=there)
        return super().send(request)

    def write(self, data: bytes) -> bool:
        """Send requests; return False after the end."""
        if self.ended or self._link.lost:
            return False
        self._link.sender.send(2 * self.number, data)
        return True

    def kill(self, number: signal.Signals, *, alone: bool = False) -> None:
        """Signal the process group, or the child alone."""
        self._control("kill", number=number, alone=alone)

    def _control(self, method: str, **arguments: int) -> None:
        if not self.ended:
            self._link.sender.send_message(do="control", lane=self.number, method=method, **arguments)

    def suspend(self) -> None:
        """Suspend the child."""
        self._control("suspend")

    def continue_(self) -> None:
        """Continue a suspended child."""
        self._control("continue_")

    def end(self, code: int, at_ns: int) -> None:
        """Report the child's end."""
        self._tell_end(code, self._link.clock.here(at_ns))
        self._note_end()

    def lose(self, why: TfmonError, at_ns: int) -> None:
        """Report a lost connection."""
        if self.ended:
            return
        if not self.end_requested:
            failed = LaneFailed(at_ns=at_ns, lane=self.lane, kind=HOST_LOST, message=why.message, hint=why.hint)
            self._tell(failed)
        self._tell_end(None, at_ns)
        self._note_end()

    def _here(self, event: FromLane) -> FromLane:
        """Convert stamp and folder."""
        if isinstance(event, Profiled | ProfileFailed):
            event = replace(event, folder=self._profiles.get(event.folder, event.folder))
        return replace(event, at_ns=self._link.clock.here(event.at_ns))


class Link:
    """Carries frames and messages until it ends.

    A thread delivers events, so that a slow listener does not delay heartbeats and answers. Thread: any; `hold`
    and `go_on` also from a signal's handler.
    """

    def __init__(self, wire: Wire, sender: Sender, tell: Callable[[Event], None]) -> None:
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
        self._frames = FrameReader()
        self._calls: dict[int, Future[dict[str, Any]]] = {}
        self._processes: dict[int, RemoteProcess] = {}
        self._closing = False
        self._close_s = 0.0
        self._last_word = ""
        self._ponged = threading.Event()
        self._agent = self._agent_before = (0, 0, -1)
        """Clock, CPU time and memory of the agent."""
        self.sender = sender
        start_thread(f"tfmon-tell-{self.host}", self._tell_all, self._end_untold)
        start_thread(f"tfmon-host-{self.host}", lambda: self._end(self._serve()), self._end)

    def call(self, do: str, timeout_s: float, **arguments: object) -> dict[str, Any]:
        """Return the agent's answer; raises TfmonError."""
        number, answered = next(self.numbers), Future[dict[str, Any]]()
        self._calls[number] = answered
        try:
            if self.lost:
                raise self.loss()
            self.sender.send_message(do=do, call=number, **arguments)
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
        self._processes[process.number] = process
        try:
            answer = self.call("start", patience_s, number=process.number, **payload)
            if "failed" in answer:
                raise OSError(answer["number"], clean(answer["failed"], 200))
            process.pid = answer["pid"]
        finally:
            if not process.pid:
                self._processes.pop(process.number, None)

    def hold(self) -> None:
        """Suspend the lanes."""
        self.sender.send_message(do="hold")
        self.sender.flush(HOLD_S)

    def go_on(self) -> None:
        """End `hold`."""
        self.sender.send_message(do="go_on")

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
        for stream, payload in self._frames.take(chunk):
            if stream == MESSAGES:
                self._take_message(json.loads(payload), at_ns)
            elif (process := self._processes.get(stream // 2)) is not None:
                take = process.output.take if stream % 2 else process.metrics.take
                self.works.put(partial(take, payload))

    def _take_message(self, message: dict[str, Any], at_ns: int) -> None:
        match message:
            case {"beat": sent_ns, "at_ns": there_ns, "cpu_ns": cpu_ns, "memory_bytes": memory_bytes}:
                self.clock.take(Ping(sent_ns, there_ns, at_ns))
                self._agent = there_ns, cpu_ns, memory_bytes
                self._ponged.set()
            case {"call": number}:
                answered = self._calls.get(number)
                if answered is not None and not answered.done():
                    answered.set_result(message)
            case {"reading": line}:
                self.works.put(lambda: self._tell_reading(line.encode()))
            case {"dropped": number, "size": size} if number in self._processes:
                self.works.put(partial(self._processes[number].output.drop, size))
            case {"ended": number, "code": code, "at_ns": there_ns} if number in self._processes:
                self.works.put(partial(self._processes.pop(number).end, code, there_ns))
            case {"last": reason}:
                self._last_word = self._last_word or str(reason)

    def _ping(self) -> None:
        self.sender.send_message(do="beat", sent_ns=time.monotonic_ns())

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
        self.break_off(reason)
        try:
            self._tell_all()
        finally:
            self.over.set()

    def _tell_reading(self, line: bytes) -> None:
        try:
            event = decode(line, self.host)
        except CodecError:
            return
        here = self.clock.here
        moved = event.on_clock(here) if isinstance(event, GpuSample) else replace(event, at_ns=here(event.at_ns))
        self._tell(moved)

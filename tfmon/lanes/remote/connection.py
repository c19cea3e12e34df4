"""The connection to the agent of one host."""

from __future__ import annotations

import inspect
import itertools
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NoAnswer
from dataclasses import asdict, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar, get_type_hints

from tfmon.errors import TfmonError
from tfmon.lanes import script_input
from tfmon.lanes.lane_process import Echo, Sink
from tfmon.lanes.launch import BOOTSTRAP, ProcessPlan
from tfmon.lanes.plan import digest
from tfmon.lanes.remote import questions
from tfmon.lanes.remote.link_lines import LineReader, Sender
from tfmon.lanes.remote.remote_host import Host
from tfmon.lanes.remote.remote_process import HostClock, RemoteProcess
from tfmon.lanes.remote.start_program import Wire
from tfmon.lanes.remote.trouble import HostError, bridge_error, why_ended
from tfmon.model.codec import CodecError, clean, plain, read
from tfmon.model.event_base import Event
from tfmon.model.events import HostConnected, HostConnecting, HostLost, LinkMeasured
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.gpu_samples import GpuSample
from tfmon.model.race import Machine
from tfmon.model.readings import HostSample, Missing, TreeSample, scaled
from tfmon.probes.base import CounterRate, Gpu
from tfmon.system.lane_pipes import expected
from tfmon.system.threads import start_thread

if TYPE_CHECKING:
    from tfmon.doctor.diagnosis import Diagnosis

START_S = 20.0
ASK_S = 120.0
"""The doctor may import TensorFlow."""
AT_ONCE = 16
BEAT_S = 1.0
SILENCE_S = 5.0
"""The agent answers heartbeats."""
LATE_S = 2.0
"""A loop that is later was stopped itself."""
CLOSE_S = 2.0
MOST_UNTOLD = 2_000
"""Reading stops while more events wait, so that the agent sees a slow link."""
CROWDED_S = 0.02
SETTLE_BEATS = 10
FIRST_PINGS, FIRST_PINGS_S = 20, 3.0
HOLD_S = 0.3


Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")
Sample: TypeAlias = TreeSample | HostSample | GpuSample


class Connection:
    """One host with its lanes, and the connection to its agent.

    A thread reads. Another one delivers events, so that a slow listener does not delay heartbeats and answers.
    Thread: any; `hold` and `go_on` also from a signal's handler.
    """

    sender: Sender

    def __init__(self, host: Host, sink: Callable[[Event], None]) -> None:
        self.host = host
        self.machine = Machine()
        self.folder = self.python = ""
        self.lost = "it was not connected"
        self._loss: TfmonError = HostError(f"{host.called} is lost: {self.lost}")
        self._sink = sink
        self._opening = threading.Lock()
        self._wire: Wire | None = None
        self._gpus: Sequence[Gpu] | None = None
        self._closed = False
        self._numbers = itertools.count(1)
        self._works: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._ponged, self._over = threading.Event(), threading.Event()
        self._over.set()
        self._reset()

    def _reset(self) -> None:
        self.clock, self._lines = HostClock(), LineReader()
        self._calls: dict[int, Future[dict[str, Any]]] = {}
        self._processes: dict[int, RemoteProcess] = {}
        self._ending, self._close_s, self._last_word = False, 0.0, ""
        self.link: LinkMeasured | None = None
        self._agent, self._agent_cpu = (0, 0, -1), CounterRate()
        """Clock, CPU time and memory of the agent."""

    def ensure(self) -> None:
        """Connect unless connected; may block; raises TfmonError."""
        with self._opening:
            if not self.lost:
                return
            try:
                self._open()
            except TfmonError as error:
                self._loss = error
                self._sink(HostLost(host=self.host.name, reason=error.message))
                raise

    def _open(self) -> None:
        self._over.wait(CLOSE_S)  # the last events of an earlier connection come first
        self._sink(HostConnecting(host=self.host.name))
        self._wire = wire = Wire(self.host)
        if self._closed:
            wire.cancel()
        wire.greet()
        self.folder, self.python, self.host = wire.folder, wire.python, wire.host
        self._begin(wire)
        try:
            if self._closed:  # `close` came before `_begin`
                raise HostError(f"the connection to {self.host.name} was broken off")
            self._measure()
            self.machine = self.ask(questions.machine)
        except BaseException:
            self._end()
            raise
        self._sink(HostConnected(host=self.host.name, machine=self.machine))
        if self._gpus is not None:
            self.begin_readings(self._gpus)

    def _begin(self, wire: Wire) -> None:
        self._reset()
        self.lost = ""
        self._over.clear()
        self.sender = Sender(os.dup(wire.connection.fileno()), partial(wire.connection.shutdown, socket.SHUT_WR))
        name = self.host.name
        start_thread(f"tfmon-tell-{name}", self._deliver, self._end_untold)
        start_thread(f"tfmon-host-{name}", lambda: self._lose(wire, self._serve(wire)), partial(self._lose, wire))

    def close(self) -> None:
        """End the agent within 3 s."""
        self._closed = True
        if self._wire is not None:
            self._wire.cancel()
        self._end()

    def _end(self) -> None:
        self._ending = True
        self.break_off("")
        self._over.wait(CLOSE_S + 1.0)

    def break_off(self, reason: str) -> None:
        """End the connection. Thread: any."""
        self._last_word = self._last_word or reason
        self._close_s = self._close_s or time.monotonic() + CLOSE_S
        if not self.lost:
            self.sender.close()

    def ask(
        self, question: Callable[Arguments, Answer], *arguments: Arguments.args, **keywords: Arguments.kwargs
    ) -> Answer:
        """Return the answer to one of `questions`; blocks; raises TfmonError. Thread: any except the sink's."""
        bound = inspect.signature(question).bind(*arguments, **keywords).arguments
        answered = self._call("ask", ASK_S, question=question.__name__, arguments=plain(bound))
        try:
            answer: Answer = read(answered.get("answer"), get_type_hints(question)["return"])
        except CodecError as error:
            raise HostError(f"an answer of the agent cannot be read: {error}") from None
        return answer

    def begin_readings(self, gpus: Sequence[Gpu]) -> None:
        """Read the machine and these GPUs."""
        self._gpus = tuple(gpus)
        if self.lost:
            raise self._loss
        self.sender.send(do="read", gpus=[plain(gpu) for gpu in gpus])

    def _call(self, do: str, timeout_s: float, **arguments: object) -> dict[str, Any]:
        number, answered = next(self._numbers), Future[dict[str, Any]]()
        self._calls[number] = answered
        try:
            if self.lost:
                raise self._loss
            self.sender.send(do=do, call=number, **arguments)
            answer = answered.result(timeout_s)
        except NoAnswer:
            raise HostError(f"{self.host.name} did not answer within {timeout_s:.0f} s") from None
        finally:
            self._calls.pop(number, None)
        if "error" in answer:
            hint = clean(str(answer.get("hint", "")), 400)
            raise HostError(f"{self.host.name}: {clean(str(answer['error']), 400)}", hint)
        return answer

    def start_lane(self, plan: ProcessPlan, sink: Sink, echo: Echo) -> RemoteProcess:
        """See `Place`. Blocks."""
        if self.lost:
            raise self._loss
        nice, environment = self.host.ray.nice if self.host.ray is not None else None, plan.environment
        if nice is not None:
            environment = {**environment, **expected(nice, os.environ, environment)}
        payload: dict[str, Any] = {"path_first": bool(self.host.python), "echo": echo is not None}
        scenario, file = "", Path(plan.scenario)
        if file.is_file():
            scenario = f"{self.folder}/scenarios/{digest(file)}/{file.name}"
            payload["file"] = scenario, file.read_bytes().decode("latin-1")
        folder, script = working_folder() if plan.argv else None, plan.script.removeprefix(str(BOOTSTRAP))
        payload["plan"] = asdict(replace(plan, environment=environment, folder=folder, script=script))
        number = next(self._numbers)
        process = RemoteProcess(number, plan, sink, echo, self.tell, self.clock, self.folder, scenario)
        running = {number: other for number, other in self._processes.items() if not other.ended}
        self._processes = {**running, process.number: process}
        try:
            answer = self._call("start", START_S, number=process.number, payload=payload)
            if "failed" in answer:
                raise OSError(answer["errno"], clean(answer["failed"], 200))
            process.pid = answer["pid"]
        finally:
            if not process.pid:
                self._processes.pop(process.number, None)
        passed = script_input.current() if plan.argv else None
        if passed is not None and passed.is_sent:  # waits until the start is recorded
            start_thread("tfmon-input", lambda: process.tell_input(script_input.ELSEWHERE), self.break_off)
        return process

    def tell(self, **message: object) -> bool:
        """Send a message, unless the host is lost."""
        if self.lost:
            return False
        self.sender.send(**message)
        return True

    def hold(self) -> None:
        """See `Place`."""
        if self.tell(do="hold"):
            self.sender.flush(HOLD_S)

    def go_on(self) -> None:
        """See `Place`."""
        self.tell(do="go_on")

    def _measure(self) -> None:
        until_s = time.monotonic() + FIRST_PINGS_S
        for _ in range(FIRST_PINGS):
            self._ponged.clear()
            self._ping()
            if not self._ponged.wait(max(0.0, until_s - time.monotonic())) or self.lost:
                break
        self._settle()

    def _serve(self, wire: Wire) -> str:
        beats, beat_s, heard_s = 0, 0.0, time.monotonic()
        self._take(wire.received)
        while True:
            # A caller waits for an answer, even if many events wait.
            crowded = self._works.qsize() > MOST_UNTOLD and not self._calls
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
                return why_ended(wire.host, wire.exit_code(), wire.error_lines())
            if now_s >= beat_s:
                beat_s, beats = now_s + BEAT_S, beats + 1
                self._ping()
                if beats % SETTLE_BEATS == 0:
                    self._settle()
            if self._close_s and now_s > self._close_s:
                return "it did not end"
            if now_s - heard_s > SILENCE_S:
                return f"nothing was received for {SILENCE_S:.0f} s"

    def _take(self, chunk: bytes) -> None:
        at_ns = time.monotonic_ns()
        for message in self._lines.take(chunk):
            match message:
                case {"number": number}:
                    if number in self._processes:
                        self._works.put(partial(self._processes[number].take, message))
                case {"event": sample}:
                    self._works.put(partial(self._tell_sample, sample))
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
        there_ns, cpu_ns, memory_bytes = self._agent
        cpu_pct = scaled(self._agent_cpu.per_s(cpu_ns, there_ns), 1e-7)
        unknown = Missing("that system does not say how much memory a process has")
        self.link = measured = LinkMeasured(
            host=self.host.name,
            round_trip_ns=self.clock.round_trip_ns,
            offset_ns=self.clock.offset_ns,
            error_ns=self.clock.error_ns,
            agent_cpu_pct=cpu_pct,
            agent_bytes=memory_bytes if memory_bytes >= 0 else unknown,
        )
        self._works.put(lambda: self._sink(measured))

    def _lose(self, wire: Wire, reason: str) -> None:
        wire.kill()
        self.sender.close()
        reported = bridge_error(wire.error_lines()) if wire.host.ray is not None else None
        why = self.sender.failure or self._last_word or (reported.message if reported else reason)
        lost = " ".join(clean(why, 400).split()) or "the connection was closed"
        self._loss = reported or HostError(f"{self.host.called} is lost: {lost}")
        self.lost = lost
        self._ponged.set()
        at_ns = time.monotonic_ns()
        for answered in list(self._calls.values()):
            if not answered.done():
                answered.set_exception(self._loss)
        if not self._ending:
            event = HostLost(at_ns=at_ns, host=self.host.name, reason=lost)
            self._works.put(lambda: self._sink(event))
        for process in list(self._processes.values()):
            self._works.put(partial(process.lose, self._loss, at_ns))
        self._works.put(None)

    def _deliver(self) -> None:
        while (work := self._works.get()) is not None:
            work()
        self._over.set()

    def _end_untold(self, reason: str) -> None:
        self.break_off(reason)
        try:
            self._deliver()
        finally:
            self._over.set()

    def _tell_sample(self, sample: object) -> None:
        try:
            event: Sample = read(sample, Sample, strict=False)
        except CodecError:
            return
        if isinstance(event, GpuSample):
            event = event.on_clock(self.clock.to_monitor)
        else:
            event = replace(event, at_ns=self.clock.to_monitor(event.at_ns))
        self._sink(event if isinstance(event, TreeSample) else replace(event, host=self.host.name))


def working_folder() -> str:
    """Return the shell's path of the working directory: a host is likelier to have it."""
    shell_folder = os.environ.get("PWD", "")
    try:
        same = bool(shell_folder) and Path(shell_folder).samefile(".")
    except OSError:
        same = False
    return shell_folder if same else str(Path.cwd())


@dataclass(frozen=True, slots=True)
class Surveyed:
    """The facts of one host."""

    host: Host
    error: str = ""
    hint: str = ""
    machine: Machine = field(default_factory=Machine)
    python: str = ""
    link: LinkMeasured | None = None


def survey(hosts: Sequence[Host]) -> list[Surveyed]:
    """Survey hosts at once; takes seconds."""
    connections = [Connection(host, lambda _: None) for host in hosts]
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="tfmon-survey") as pool:
        try:
            return list(pool.map(_survey, connections))
        except BaseException:
            for connection in connections:
                connection.close()
            raise


def _survey(connection: Connection) -> Surveyed:
    host = connection.host
    try:
        connection.ensure()
        _, machine = connection.ask(questions.gpus)
    except TfmonError as error:
        return Surveyed(host, error=error.message, hint=error.hint)
    finally:
        connection.close()
    return Surveyed(host, machine=machine, python=connection.python, link=connection.link)


def examine(host: Host, python: str = "", *, imports: bool = True) -> Diagnosis:
    """Return a host's report; raises TfmonError."""
    from tfmon.doctor.diagnosis import Diagnosis

    connection = Connection(host, lambda _: None)
    try:
        connection.ensure()
        return Diagnosis(connection.ask(questions.doctor, imports, working_folder(), python))
    finally:
        connection.close()

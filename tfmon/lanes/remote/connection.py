"""The connection to the agent of one host, which can be made again after a loss."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfmon.errors import TfmonError
from tfmon.lanes.launch import BOOTSTRAP, Command, ProcessLauncher
from tfmon.lanes.plan import LanePlan, RacePlan, command_of, device_word, digest
from tfmon.lanes.process import Sink
from tfmon.lanes.remote.frames import Kind
from tfmon.lanes.remote.host import Host
from tfmon.lanes.remote.line import HostLine, RemoteProcess
from tfmon.lanes.remote.questions import read_doctor_answer, read_part
from tfmon.lanes.remote.trouble import HostError
from tfmon.lanes.remote.wire import Greeting, Wire
from tfmon.model.codec import plain
from tfmon.model.events import Event, HostConnected, HostConnecting, LinkMeasured
from tfmon.model.lane_pipes import expected
from tfmon.model.race import Machine
from tfmon.probes.base import Gpu

if TYPE_CHECKING:
    from tfmon.doctor.report import Diagnosis

START_S = 20.0
ASK_S = 60.0
AT_ONCE = 16
DOCTOR_S = 120.0
"""Time limit of the doctor there; its checks have smaller limits, whose sum is below this."""


class Connection:
    """One host. It is the `Place` of its lanes. Thread: any; blocking methods are marked."""

    def __init__(self, host: Host, sink: Callable[[Event], None], launcher: ProcessLauncher | None = None) -> None:
        """Connect to nothing yet; without `launcher` ssh has the calling thread's priority."""
        self.host = host
        self.machine = Machine()
        self.greeting = Greeting()
        self._sink = sink
        self._launcher = launcher
        self._opening = threading.Lock()
        self._wire: Wire | None = None
        self._line: HostLine | None = None
        self._gpus: Sequence[Gpu] | None = None
        self._closed = False

    @property
    def lost(self) -> str:
        """The reason for a missing connection, or empty if connected."""
        return self._line.link.lost if self._line is not None else "it was not connected"

    def ensure(self) -> None:
        """Connect unless it is connected, and report the machine; may block; raises TfmonError."""
        with self._opening:
            if self.lost:
                self._open()

    def _open(self) -> None:
        self._sink(HostConnecting(at_ns=time.monotonic_ns(), host=self.host.name))
        self._wire = wire = Wire(self.host) if self._launcher is None else self._launcher(Wire, self.host)
        if self._closed:
            wire.cancel()
        wire.greet()
        self.greeting = wire.greeting
        if self.host.ray is not None:  # on the same node from now on: what was measured is of that one
            self.host = wire.host = replace(self.host, ray=self.host.ray.placed(wire.greeting.launcher))
        self._line = line = HostLine(wire, self._sink)
        try:
            if self._closed:  # meanwhile, when there was no line to close
                raise HostError(f"the connection to {self.host.name} was broken off")
            line.link.measure()
            self.machine = read_part(line.ask("machine", {}, ASK_S), "machine", Machine)
        except BaseException:
            line.close()
            raise
        self._sink(HostConnected(at_ns=time.monotonic_ns(), host=self.host.name, machine=self.machine))
        if self._gpus is not None:
            self.begin_readings(self._gpus)

    def close(self) -> None:
        """End the agent and everything that it started. It takes 3 s at most."""
        self._closed = True
        if self._wire is not None:
            self._wire.cancel()
        if self._line is not None:
            self._line.close()

    def ask(self, question: str, timeout_s: float = ASK_S, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        """Return the answer of `questions`; blocks; raises TfmonError. Thread: any except the sink's."""
        return self._connected().ask(question, arguments, timeout_s)

    def begin_readings(self, gpus: Sequence[Gpu]) -> None:
        """Make the agent read the machine and these GPUs from now on, also after the next connection."""
        self._gpus = tuple(gpus)
        payload = json.dumps({"gpus": [plain(gpu) for gpu in gpus]}).encode()
        self._connected().link.outbox.put(Kind.READ, 0, payload)

    def _connected(self) -> HostLine:
        line = self._line
        if line is None:
            raise HostError(f"{self.host.called} is lost: {self.lost}")
        if line.link.lost:
            raise line.loss()
        return line

    def start_lane(
        self, lane: LanePlan, plan: RacePlan, script: Path, sink: Sink, ended: Callable[[], None]
    ) -> RemoteProcess:
        """Start the process of a lane there; see `Place`. It blocks for a round trip."""
        try:
            line = self._connected()
        except TfmonError as error:
            raise ConnectionError(str(error)) from error
        nice, environment = self.host.ray.nice if self.host.ray is not None else None, lane.environment
        if nice is not None:  # the launcher changes what the lane should have
            environment = {**environment, **expected(nice, os.environ, environment)}
        payload: dict[str, Any] = {
            "name": lane.spec.name,
            "environment": environment,
            "python": "",
            "script": "" if script == BOOTSTRAP else str(script),
            "command": None,
            "folder": None,
            "path_first": bool(self.host.python),
        }
        scenario = ""
        if plan.command:
            command = Command(command_of(plan, lane), device_word(lane), lane.settings, plan.grace_s, lane.view)
            payload.update(command=asdict(command), folder=working_folder())
        else:
            scenario = self._ship(line, plan.scenario)
        process = RemoteProcess(lane.spec.name, next(line.numbers), scenario, line.link, sink, ended)
        line.begin(process, payload, START_S)
        return process

    @staticmethod
    def _ship(line: HostLine, scenario: Path) -> str:
        """Send a scenario's file, and return its path there, or empty if the file cannot be read here."""
        try:
            content = scenario.read_bytes()
        except OSError:
            return ""
        name = f"scenarios/{digest(scenario)}/{scenario.name}"
        line.link.outbox.put(Kind.FILE, 0, os.fsencode(name) + b"\0" + content)
        return f"{line.link.folder}/{name}"

    def suspend_with_monitor(self) -> None:
        """Suspend the lanes there, and keep the agent from taking silence for a loss. Thread: also a handler."""
        if self._line is not None and not self._line.link.lost:
            self._line.hold()

    def continue_with_monitor(self) -> None:
        """End `suspend_with_monitor`. Thread: also a handler."""
        if self._line is not None and not self._line.link.lost:
            self._line.go_on()


def working_folder() -> str:
    """Return the working directory as the shell names it: on another machine, that path means the same sooner."""
    named = os.environ.get("PWD", "")
    try:
        same = bool(named) and Path(named).samefile(".")
    except OSError:
        same = False
    return named if same else str(Path.cwd())


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
    """Return the surveys of hosts, taken at once. Thread: any; takes seconds, or as long as a launcher tries."""
    seen: list[list[Event]] = [[] for _ in hosts]
    connections = [Connection(host, events.append) for host, events in zip(hosts, seen, strict=True)]
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="tfmon-survey") as pool:
        try:
            return list(pool.map(_survey, connections, seen))
        except BaseException:  # Ctrl+C: nobody waits for a host any more
            for connection in connections:
                connection.close()
            raise


def _survey(connection: Connection, seen: Sequence[Event]) -> Surveyed:
    host = connection.host
    try:
        connection.ensure()
        machine = read_part(connection.ask("gpus"), "machine", Machine)
    except TfmonError as error:
        return Surveyed(host, error=error.message, hint=error.hint)
    finally:
        connection.close()
    link = next((event for event in reversed(seen) if isinstance(event, LinkMeasured)), None)
    return Surveyed(host, machine=machine, python=connection.greeting.python, link=link)


def examine(host: Host, python: str = "", *, imports: bool = True) -> Diagnosis:
    """Return the doctor's report of a host; raises TfmonError if the host cannot be used."""
    connection = Connection(host, lambda _: None)
    try:
        connection.ensure()
        arguments = {"imports": imports, "folder": working_folder(), "python": python}
        return read_doctor_answer(connection.ask("doctor", DOCTOR_S, **arguments))
    finally:
        connection.close()

"""The connection to the agent of one host."""

from __future__ import annotations

import base64
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfmon.errors import TfmonError
from tfmon.lanes import script_input
from tfmon.lanes.lane_process import Sink
from tfmon.lanes.launch import BOOTSTRAP
from tfmon.lanes.plan import LanePlan, RacePlan, digest, process_command
from tfmon.lanes.remote.agent_link import Link, RemoteProcess
from tfmon.lanes.remote.questions import read_doctor_answer, read_part
from tfmon.lanes.remote.remote_host import Host
from tfmon.lanes.remote.start_program import Greeting, Wire
from tfmon.lanes.remote.trouble import HostError
from tfmon.model.codec import plain
from tfmon.model.events import Event, HostConnected, HostConnecting, HostLost, LinkMeasured
from tfmon.model.race import Machine
from tfmon.probes.base import Gpu
from tfmon.system.lane_pipes import expected
from tfmon.system.threads import start_thread

if TYPE_CHECKING:
    from tfmon.doctor.diagnosis import Diagnosis

START_S = 20.0
ASK_S = 60.0
AT_ONCE = 16
DOCTOR_S = 120.0


class Connection:
    """One host, the `Place` of its lanes. Thread: any."""

    def __init__(self, host: Host, sink: Callable[[Event], None]) -> None:
        self.host = host
        self.machine = Machine()
        self.greeting = Greeting()
        self._sink = sink
        self._opening = threading.Lock()
        self._wire: Wire | None = None
        self._link: Link | None = None
        self._gpus: Sequence[Gpu] | None = None
        self._away: TfmonError | None = None
        self._closed = False

    @property
    def lost(self) -> str:
        """Why it is not connected, or empty."""
        return self._link.lost if self._link is not None else "it was not connected"

    def ensure(self) -> None:
        """Connect unless connected; may block; raises TfmonError."""
        with self._opening:
            if not self.lost:
                return
            self._away = None
            try:
                self._open()
            except TfmonError as error:
                self._away = error
                self._sink(HostLost(at_ns=time.monotonic_ns(), host=self.host.name, reason=error.message))
                raise

    def _open(self) -> None:
        self._sink(HostConnecting(at_ns=time.monotonic_ns(), host=self.host.name))
        self._wire = wire = Wire(self.host)
        if self._closed:
            wire.cancel()
        wire.greet()
        self.greeting, self.host = wire.greeting, wire.host
        self._link = link = Link(wire, self._sink)
        try:
            if self._closed:  # when there was no link to close
                raise HostError(f"the connection to {self.host.name} was broken off")
            link.measure()
            self.machine = read_part(self.ask("machine"), "machine", Machine)
        except BaseException:
            link.close()
            raise
        self._sink(HostConnected(at_ns=time.monotonic_ns(), host=self.host.name, machine=self.machine))
        if self._gpus is not None:
            self.begin_readings(self._gpus)

    def close(self) -> None:
        """End the agent within 3 s."""
        self._closed = True
        if self._wire is not None:
            self._wire.cancel()
        if self._link is not None:
            self._link.close()

    def ask(self, question: str, timeout_s: float = ASK_S, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        """Return the answer of `questions`; blocks; raises TfmonError. Thread: any except the sink's."""
        return self._connected().call("ask", timeout_s, question=question, arguments=arguments)

    def begin_readings(self, gpus: Sequence[Gpu]) -> None:
        """Read the machine and these GPUs."""
        self._gpus = tuple(gpus)
        self._connected().sender.send(do="read", gpus=[plain(gpu) for gpu in gpus])

    def _connected(self) -> Link:
        link = self._link
        if self._away is not None:
            raise self._away
        if link is None:
            raise HostError(f"{self.host.called} is lost: {self.lost}")
        if link.lost:
            raise link.loss()
        return link

    def start_lane(
        self,
        lane: LanePlan,
        plan: RacePlan,
        script: Path,
        sink: Sink,
        ended: Callable[[], None],
        echo: Callable[[bytes], object] | None = None,
    ) -> RemoteProcess:
        """Start a lane; blocks."""
        link = self._connected()
        nice, environment = self.host.ray.nice if self.host.ray is not None else None, lane.environment
        if nice is not None:
            environment = {**environment, **expected(nice, os.environ, environment)}
        command = process_command(plan, lane)
        payload: dict[str, Any] = {
            "name": lane.spec.name,
            "environment": environment,
            "script": "" if script == BOOTSTRAP else str(script),
            "command": command and asdict(command),
            "folder": command and working_folder(),
            "path_first": bool(self.host.python),
            "echo": echo is not None,
        }
        process = RemoteProcess(
            lane.spec.name,
            next(link.numbers),
            link,
            sink,
            ended,
            grace_s=command.grace_s if command is not None else None,
            scenario="" if command is not None else self._ship(link, plan.scenario),
            echo=echo,
        )
        link.begin(process, payload, START_S)
        passed = script_input.current() if command is not None else None
        if passed is not None and passed.is_sent:  # waits until the start is recorded
            start_thread("tfmon-input", lambda: process.tell_input(script_input.ELSEWHERE), link.break_off)
        return process

    @staticmethod
    def _ship(link: Link, scenario: Path) -> str:
        """Return the scenario's path there, or empty."""
        try:
            content = base64.b64encode(scenario.read_bytes()).decode()
        except OSError:
            return ""
        name = f"scenarios/{digest(scenario)}/{scenario.name}"
        link.sender.send(do="keep", name=name, content=content)
        return f"{link.folder}/{name}"

    def hold(self) -> None:
        """Suspend the lanes. Thread: also a handler."""
        if self._link is not None and not self._link.lost:
            self._link.hold()

    def go_on(self) -> None:
        """End `hold`. Thread: also a handler."""
        if self._link is not None and not self._link.lost:
            self._link.go_on()


def working_folder() -> str:
    """Return the working directory as the shell names it: a host is more likely to have that."""
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
    """Survey hosts at once; takes seconds."""
    seen: list[list[Event]] = [[] for _ in hosts]
    connections = [Connection(host, events.append) for host, events in zip(hosts, seen, strict=True)]
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="tfmon-survey") as pool:
        try:
            return list(pool.map(_survey, connections, seen))
        except BaseException:
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
    """Return a host's report; raises TfmonError."""
    connection = Connection(host, lambda _: None)
    try:
        connection.ensure()
        arguments = {"imports": imports, "folder": working_folder(), "python": python}
        return read_doctor_answer(connection.ask("doctor", DOCTOR_S, **arguments))
    finally:
        connection.close()

"""The connection to the agent of one host: made, made again after a loss, and what is done over it."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfmon.errors import TfmonError
from tfmon.hosts.frames import Kind
from tfmon.hosts.host import Host
from tfmon.hosts.line import Line
from tfmon.hosts.remote import RemoteProcess
from tfmon.hosts.trouble import HostError
from tfmon.hosts.wire import Greeting, Wire
from tfmon.lanes.launch import BOOTSTRAP, Command, ProcessLauncher
from tfmon.lanes.plan import LanePlan, RacePlan, device_word, digest
from tfmon.lanes.process import Sink
from tfmon.model.codec import plain
from tfmon.model.events import Event, HostConnected, HostConnecting
from tfmon.model.race import Machine
from tfmon.model.surroundings import expected

if TYPE_CHECKING:
    from tfmon.probes.base import Gpu

START_S = 20.0
"""How long an agent may take to start a process."""
ASK_S = 60.0


class Connection:
    """One host. It is the `Place` of its lanes.

    Thread: any; those that may block say so.
    """

    def __init__(self, host: Host, sink: Callable[[Event], None], launcher: ProcessLauncher | None = None) -> None:
        """Connect to nothing yet.

        Args:
            host: How it is reached.
            sink: Takes the events about the host, in a thread of the connection.
            launcher: Starts ssh; None for the calling thread, whose priority ssh then has.
        """
        self.host = host
        self.machine = Machine()
        """What machine it is; known from `open` on."""
        self.greeting = Greeting()
        """What the agent said of itself."""
        self._sink = sink
        self._launcher = launcher
        self._opening = threading.Lock()
        self._wire: Wire | None = None
        self._line: Line | None = None
        self._gpus: Sequence[Gpu] | None = None
        self._closed = False

    @property
    def python(self) -> str:
        """The path of the Python there."""
        return self.greeting.python

    @property
    def folder(self) -> str:
        """The private folder of the agent there; empty before there is one."""
        return self.greeting.folder

    @property
    def lost(self) -> str:
        """Why there is no connection; empty while there is one."""
        return self._line.lost if self._line is not None else "it was not connected"

    # ---------------------------------------------------------------- made and ended

    def open(self) -> None:
        """Connect, and tell which machine it is. It may block for as long as the launcher lets it.

        Raises:
            TfmonError: The host cannot be used; the text says why, and what to do.
        """
        with self._opening:
            self._open()

    def ensure(self) -> None:
        """Connect again where the connection is lost. It may block, and raises TfmonError as `open` does."""
        with self._opening:
            if self.lost:
                self._open()

    def _open(self) -> None:
        self._sink(HostConnecting(at_ns=time.monotonic_ns(), host=self.host.name))
        self._wire = wire = Wire(self.host) if self._launcher is None else self._launcher(Wire, self.host)
        if self._closed:
            wire.cancel()
        greeting, rest = wire.greet()
        self.greeting = greeting
        if self.host.ray is not None:  # on the same node from now on: what was measured is of that one
            self.host = replace(self.host, ray=self.host.ray.placed(greeting.launcher))
        self._line = line = Line(wire, greeting, rest, self._sink)
        try:
            if self._closed:  # meanwhile, when there was no line to close
                raise HostError(f"the connection to {self.host.name} was broken off")
            line.measure()
            self.machine = self._read_machine(line)
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

    def _read_machine(self, line: Line) -> Machine:
        from tfmon.hosts.questions import read_machine_answer

        return read_machine_answer(line.ask("machine", {}, ASK_S))

    # ---------------------------------------------------------------- questions and readings

    def ask(self, question: str, timeout_s: float = ASK_S, **words: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        """Return the answer of `hosts.questions` there. It blocks; not for the thread of the sink.

        Raises:
            TfmonError: There is no answer; the text says why.
        """
        return self._connected().ask(question, words, timeout_s)

    def begin_readings(self, gpus: Sequence[Gpu]) -> None:
        """Have the agent read the machine and these GPUs from now on, also after the next connection."""
        self._gpus = tuple(gpus)
        payload = json.dumps({"gpus": [plain(gpu) for gpu in gpus]}).encode()
        self._connected().put(Kind.READ, 0, payload)

    def _connected(self) -> Line:
        line = self._line
        if line is None or line.lost:
            raise TfmonError(f"{self.host.name} is lost: {self.lost}")
        return line

    # ---------------------------------------------------------------- lanes

    def start_lane(
        self, lane: LanePlan, plan: RacePlan, script: Path, sink: Sink, ended: Callable[[], None]
    ) -> RemoteProcess:
        """Start the process of a lane there; see `Place`. It blocks for a round trip."""
        try:
            line = self._connected()
        except TfmonError as error:
            raise ConnectionError(str(error)) from error
        words: dict[str, Any] = {
            "name": lane.spec.name,
            "environment": {**lane.environment, **self._surroundings(lane)},
            "python": "",
            "script": "" if script == BOOTSTRAP else str(script),
            "command": None,
            "folder": None,
            "path_first": bool(self.host.python),
        }
        scenario = ""
        if plan.command:
            command = Command(plan.command, device_word(lane), lane.settings, plan.grace_s, lane.view)
            words.update(command=asdict(command), folder=working_folder())
        else:
            scenario = self._ship(line, plan.scenario)
        process = RemoteProcess(lane.spec.name, line.next_number(), scenario, line, sink, ended)
        line.begin(process, words, START_S)
        return process

    def _surroundings(self, lane: LanePlan) -> dict[str, str | None]:
        """Return the environment that a lane should have, where the launcher changes it."""
        nice = self.host.ray.nice if self.host.ray is not None else None
        return {} if nice is None else expected(nice, os.environ, lane.environment)

    @staticmethod
    def _ship(line: Line, scenario: Path) -> str:
        """Send a scenario's file, and return where it is there; empty where it cannot be read here."""
        try:
            content = scenario.read_bytes()
        except OSError:
            return ""
        name = f"scenarios/{digest(scenario)}/{scenario.name}"
        line.put(Kind.FILE, 0, os.fsencode(name) + b"\0" + content)
        return f"{line.folder}/{name}"

    def suspend_with_monitor(self) -> None:
        """Suspend the lanes there, and keep the agent from taking silence for a loss. Thread: also a handler."""
        if self._line is not None and not self._line.lost:
            self._line.hold()

    def continue_with_monitor(self) -> None:
        """End `suspend_with_monitor`. Thread: also a handler."""
        if self._line is not None and not self._line.lost:
            self._line.go_on()


def working_folder() -> str:
    """Return the working directory as the shell names it: on another machine, that path means the same sooner."""
    named = os.environ.get("PWD", "")
    try:
        same = bool(named) and Path(named).samefile(".")
    except OSError:
        same = False
    return named if same else str(Path.cwd())

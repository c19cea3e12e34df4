"""Connections to hosts that are this machine, by a fake ssh or a real one, and children started over them."""

import functools
import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pytest

from support.lanes import SPEAKER, Heard
from support.processes import gone, suspended
from support.waiting import PATIENCE_S, wait_for
from tfmon.lanes.lane_process import LaneProcess
from tfmon.lanes.plan import LanePlan, RacePlan, process_plan
from tfmon.lanes.remote import start_program
from tfmon.lanes.remote.connection import Connection
from tfmon.lanes.remote.remote_host import Host
from tfmon.model.event_base import Event
from tfmon.model.events import HostLost, LinkMeasured
from tfmon.model.lane_events import LaneFailed
from tfmon.model.race import Race
from tfmon.model.spec import LaneSpec

MONITOR = Path(__file__).parents[1] / "lanes" / "remote" / "monitor.py"
KINDS = ("a_listener", "defiance")
"""Children that end with their pipe, and that ignore all but SIGKILL; of each, one is suspended."""
NEVER_S = 100 * PATIENCE_S
FAKE_SSH = Path(__file__).with_name("fake_ssh.py")


class RemoteChild(Heard):
    """A child named by SAYS, or a command, on a host, with all its events."""

    def __init__(
        self,
        connection: Connection,
        says: str = "",
        command: Sequence[str] = (),
        echo: Callable[[bytes], object] | None = None,
        **environment: str | None,
    ) -> None:
        self.events = []
        spec = LaneSpec("cpu", name="gpu2/cpu", host=connection.host.name)
        lane = LanePlan(spec, {}, {"SAYS": says, **environment})
        plan = RacePlan(Race(), Path("no.py"), (lane,), Path(sys.executable), command=tuple(command))
        self.process = connection.start_lane(process_plan(plan, lane, script=SPEAKER), self._hear, echo)
        self.pid = self.process.pid

    def _hear(self, process: LaneProcess, event: Event) -> None:
        assert process.lane == "gpu2/cpu" == event.lane
        self.events.append(event)

    @property
    def failure(self) -> LaneFailed | None:
        return next((event for event in self.events if isinstance(event, LaneFailed)), None)


class Linked(Connection):
    def __init__(self, host: Host) -> None:
        self.events: list[Event] = []
        self.listener: Callable[[Event], None] = lambda _: None
        super().__init__(host, self._hear)

    def _hear(self, event: Event) -> None:
        self.events.append(event)
        self.listener(event)

    def start(self, says: str = "", **more) -> RemoteChild:
        return RemoteChild(self, says, **more)

    def heard(self, kind: type) -> list:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def measured(self) -> LinkMeasured:
        wait_for(lambda: self.heard(LinkMeasured), what="the link is measured")
        return self.heard(LinkMeasured)[0]

    def wait_for_loss(self, timeout_s: float = PATIENCE_S) -> HostLost:
        wait_for(lambda: self.heard(HostLost), timeout_s, "the loss is told")
        return self.heard(HostLost)[0]

    @property
    def agent(self) -> psutil.Process:
        return psutil.Process(self._wire.pid)


def put_fake_ssh(folder: Path) -> str:
    program = folder / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S {FAKE_SSH} "$@"\n')
    program.chmod(0o755)
    return str(program.parent)


class Ssh:
    """A program `ssh` on the PATH, and connections by it."""

    sessions: Callable[[], Sequence[psutil.Process]] = tuple
    """The processes of an sshd that serve them."""

    def __init__(self, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._links: list[Linked] = []
        monkeypatch.setenv("PATH", folder, prepend=":")
        be_patient(monkeypatch)

    def link(self, name: str = "gpu2", python: str = sys.executable, run: Sequence[str] = ()) -> Linked:
        self._links.append(Linked(Host(name, run=tuple(run), python=python)))
        return self._links[-1]

    def connect(self, name: str = "gpu2", **how: object) -> Linked:
        link = self.link(name, **how)
        link.ensure()
        return link

    def close(self) -> None:
        for link in self._links:
            link.close()


class FakeSsh(Ssh):
    """A stand-in for ssh. `behave` configures it before a connection is opened."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(put_fake_ssh(folder), monkeypatch)
        self.folder, self._monkeypatch = folder, monkeypatch
        self.home = folder / "home"
        self.home.mkdir()
        self.behave()

    def behave(self, **behaviour: object) -> None:
        """Say how connections are that are opened from now on; see `fake_ssh`."""
        self._monkeypatch.setenv("FAKE_SSH", json.dumps({"home": str(self.home), **behaviour}))


def be_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable all timeouts that end a connection, here and in the agent, for busy machines."""
    for limit in ("SILENCE_S", "HOLD_S", "START_S"):
        monkeypatch.setattr(f"tfmon.lanes.remote.connection.{limit}", NEVER_S)
    for limit in ("lanes.remote.connection.CLOSE_S", "lanes.lane_process.ASK_S"):
        monkeypatch.setattr(f"tfmon.{limit}", PATIENCE_S)
    monkeypatch.setattr(
        "tfmon.lanes.remote.start_program.packed", agents_code("SILENCE_S = 10.0", f"SILENCE_S = {NEVER_S}")
    )


def start_all_kinds(link) -> list[RemoteChild]:
    children = [link.start(says) for says in KINDS for _ in range(2)]
    for child in children:
        child.said_pid()
    for child in children[1::2]:
        child.process.suspend()
        wait_for(lambda child=child: suspended(child.pid), what="suspended")
    return children


def all_gone(children: list[RemoteChild], *others: int) -> bool:
    return all(gone(child.pid) and gone(child.said_pid()) for child in children) and all(map(gone, others))


@functools.cache
def agents_code(before: str, after: str):
    """Return the shipped archive with a replacement in the agent's code."""
    whole, changed = zipfile.ZipFile(io.BytesIO(start_program.packed())), io.BytesIO()
    with zipfile.ZipFile(changed, "w") as archive:
        for entry in whole.infolist():
            content = whole.read(entry).decode()
            if entry.filename == "tfmon/lanes/remote/agent.py":
                assert before in content
                content = content.replace(before, after)
            archive.writestr(entry, content)
    return changed.getvalue


def start_monitor(*words: str, **environment: str) -> subprocess.Popen[str]:
    variables = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **environment}
    command = [sys.executable, str(MONITOR), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables)


def read_pids(monitor: subprocess.Popen[str]) -> list[int]:
    assert monitor.stdout is not None
    return [int(word) for word in monitor.stdout.readline().split()]

"""Who watches a run in another process knows the same, and requests the same, as the screen of before."""

import os
import random
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock, call

import pytest
from support.ui import Demo, FakeExperiments
from support.waiting import PATIENCE_S, wait_for

from tfmon.api import server, sockets
from tfmon.api.program import Program
from tfmon.api.run_base import Interruption
from tfmon.api.server import Server
from tfmon.api.sockets import END, Answer, FromRunner, RunnerGreeting
from tfmon.api.viewer import Viewer
from tfmon.errors import EXIT_DEVICE_ABSENT, DeviceAbsentError, TfmonError
from tfmon.model import codec
from tfmon.model.events import BadLine
from tfmon.model.header import SCHEMA
from tfmon.model.lane_events import PAUSED
from tfmon.model.requests import Command
from tfmon.model.session import Session, Snapshot
from tfmon.recordings.header_lines import Known
from tfmon.system import threads


def known(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot as it is at any time."""
    return replace(snapshot, at_ns=0)


def connected(connection: socket.socket, **more) -> Viewer:
    viewer = Viewer(connection, **more)
    viewer.connect()
    return viewer


class FakeProgram(SimpleNamespace):
    """A program that carries out requests with other parts."""

    perform, join = Program.perform, Program.join
    suspenders, suspend_lanes, continue_lanes = Program.suspenders, Program.suspend_lanes, Program.continue_lanes


@dataclass
class Run:
    """A run without processes, and the viewers of it."""

    demo: Demo = field(default_factory=lambda: Demo(mode="turns").go())
    experiments: FakeExperiments = field(default_factory=FakeExperiments)
    suspension: Mock = field(default_factory=Mock)
    viewers: list[Viewer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.demo.controls.suspension, self.demo.controls.all_over = self.suspension, False
        program = FakeProgram(
            session=self.demo.session,
            lanes=self.demo.controls,
            experiments=self.experiments,
            repeat=lambda: "tfmon race conv",
            examine=lambda: "x" * 10_000,
            profiles=SimpleNamespace(of_lanes=lambda lanes: self.profile(*lanes)),
        )
        self.interrupted = Interruption(lambda: None, lambda: True)
        self.server = Server(program, self.interrupted)
        self.server.started.set_result("something to say")

    @staticmethod
    def profile(lane: str) -> str:
        raise DeviceAbsentError(f"no profile of {lane}", "wait")

    @property
    def calls(self) -> list[tuple[object, ...]]:
        return self.demo.controls.calls

    def connect(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        self.server.connect(theirs)
        return ours

    def watch(self) -> Viewer:
        self.viewers.append(connected(self.connect()))
        return self.viewers[-1]

    def print(self, count: int) -> None:
        """Let as many events happen: unreadable lines, of which the session keeps the last and the number."""
        for number in range(count):
            self.demo.session.accept(BadLine(lane="cpu", at_ns=self.demo.clock(), problem=f"line {number}"))

    def caught_up(self, session: Session) -> bool:
        return known(session.snapshot()) == known(self.demo.session.snapshot())


@pytest.fixture
def run() -> Iterator[Run]:
    made = Run()
    yield made
    for viewer in made.viewers:
        viewer.leave()


@pytest.mark.slow
def test_viewers_that_come_and_go_at_random_lose_no_event(run):
    chance, first, over = random.Random(1), run.watch(), threading.Event()

    def race() -> None:
        for _ in range(200):
            run.demo.race(0.4, (1_000, 5_500))
            run.print(chance.randrange(20))
        over.set()

    racing = threading.Thread(target=race)
    racing.start()
    for _ in range(50):
        viewer = run.watch()
        if chance.random() < 0.7:
            viewer.leave()
            run.viewers.remove(viewer)
    racing.join(PATIENCE_S)
    assert over.is_set()
    for viewer in run.viewers:
        wait_for(lambda viewer=viewer: run.caught_up(viewer.session), what="it has all events")
    assert first in run.viewers and len(run.viewers) > 5


def test_one_that_does_not_read_holds_nothing_up_and_then_gets_what_is_known(run, monkeypatch):
    monkeypatch.setattr(server, "MOST_WAITING", 200)
    monkeypatch.setattr(server, "FAREWELL_S", 0.01)
    deaf, connection = run.connect(), run.connect()
    for one in (deaf, connection):
        one.sendall(codec.encode(Command("follow", name="pts/9", number=1)))
    wait_for(lambda: all(one.follows for one in run.server.viewers), what="both watch")
    _, slow = run.server.viewers
    quick = run.watch()
    while slow._known is None:
        run.print(1_000)
        assert len(slow._waiting) <= 200
        wait_for(lambda: run.caught_up(quick.session), what="the other one follows")
    session, restored = Session(run.demo.session.snapshot().machine, run.demo.clock), 0
    connection.settimeout(PATIENCE_S)
    with connection.makefile("rb") as lines:
        assert codec.read(codec.parse(lines.readline()), RunnerGreeting).schema == SCHEMA
        while not run.caught_up(session):
            message = codec.read(codec.parse(lines.readline()), FromRunner)
            if isinstance(message, Known):
                session.restore(message.known)
                restored += 1
            elif not isinstance(message, Answer):
                session.accept(message)
    assert restored >= 2, "when it began to watch, and when it read again"
    run.server.close(0)  # it waits only briefly for the viewer that reads nothing
    connection.close()
    deaf.close()


def test_what_is_wrong_with_a_request_is_said_to_the_one_that_made_it(run):
    viewer = run.watch()
    assert viewer.ask(Command("repeat")) == "tfmon race conv"
    assert viewer.ask(Command("examine")) == "x" * 10_000
    assert viewer.ask(Command("undo")) == "prefetch auto"
    viewer.ask(Command("begin tuning", ("cpu",), values=(True,)))
    assert run.experiments.calls[-1] == ("start_tuning", "cpu", True)
    viewer.ask(Command("begin race", name="conv"))
    assert run.calls == [("race", "conv")]
    run.experiments.refusal = "there is nothing to take back"
    with pytest.raises(TfmonError, match="nothing to take back"):
        viewer.ask(Command("undo"))
    with pytest.raises(TfmonError, match="no profile of cpu · wait") as raised:
        viewer.ask(Command("profile lanes", ("cpu",)))
    assert raised.value.exit_code == EXIT_DEVICE_ABSENT
    with pytest.raises(TfmonError, match="profile lanes cpu, gpu:0 failed: TypeError"):
        viewer.ask(Command("profile lanes", ("cpu", "gpu:0")))


def test_the_first_end_ends_it_and_names_the_signal(run):
    one, other = run.watch(), run.watch()
    one.request_end("SIGTERM")
    wait_for(lambda: run.interrupted.count, what="it is to end")
    other.request_end()
    assert other.ask(Command("repeat"))
    assert (run.interrupted.count, run.interrupted.reason) == (1, "interrupted by SIGTERM")
    run.server.close(7)
    for viewer in (one, other):
        assert viewer.join(PATIENCE_S)
        assert viewer.ended == Answer(number=END, exit_code=7)


def test_one_that_sends_what_cannot_be_read_is_dropped_and_the_others_stay(run, capsys):
    viewer, wild = run.watch(), run.connect()
    wild.sendall(b'{"type":"Command","number":"x"}\n')
    wild.settimeout(PATIENCE_S)
    while wild.recv(65_536):
        pass
    assert "invalid request" in capsys.readouterr().err
    assert viewer.ask(Command("repeat"))


@pytest.mark.parametrize("leaves", [True, False], ids=["leaves", "is lost"])
def test_what_is_suspended_or_paused_goes_on_when_its_terminal_is_lost(run, leaves):
    viewer = run.watch()
    for lane in run.demo.names:
        run.demo.enter(lane, PAUSED)
    viewer.suspend_lanes()
    if leaves:
        viewer.leave()
    else:
        viewer._connection.shutdown(socket.SHUT_RDWR)
    continued = [call.suspend_lanes(), call.continue_lanes()]
    wait_for(lambda: run.suspension.method_calls == continued, what="the lanes continue")
    assert leaves or wait_for(lambda: run.calls, what="paused lanes resume") is None
    assert run.calls == ([] if leaves else [("resume", tuple(run.demo.names))])


def test_it_is_over_when_the_lanes_are_and_nobody_watches(run):
    viewer = run.watch()
    run.demo.controls.all_over = True
    assert not run.server.all_done()
    early = run.connect()
    viewer.leave()
    wait_for(lambda: len(run.server.viewers) == 1, what="nobody watches")
    assert not run.server.all_done(), "a viewer has connected, and loads its screen"
    early.close()
    wait_for(run.server.all_done, what="nobody watches")


def test_the_clock_of_another_machine_is_that_of_what_comes_from_there(run, monkeypatch):
    booted = partial(RunnerGreeting, scenario="train.py", clock_ns=5_000_000_000, pid=7)
    own = SimpleNamespace(**{**vars(sockets), "RunnerGreeting": lambda **_: booted()})
    monkeypatch.setattr(server, "sockets", own)
    remote = SimpleNamespace(host=SimpleNamespace(name="gpu2"), lost=lambda name: TfmonError(f"{name} is lost"))
    viewer = connected(run.connect(), remote=remote)
    assert 5 <= viewer.session.snapshot().at_ns / 1e9 < 5 + PATIENCE_S
    assert (viewer.name, viewer.lost_error().message) == ("gpu2/7", "gpu2/7 is lost")
    viewer.leave()


GREETING = codec.encode(RunnerGreeting(schema=SCHEMA, tfmon="9.9", pid=7, scenario="train.py"))
NEWER = codec.encode(RunnerGreeting(schema=SCHEMA + 1, tfmon="9.9", pid=7, scenario="train.py"))


@pytest.mark.parametrize(
    ("line", "said", "code"),
    [
        (NEWER.replace(b'"pid"', b'"new":1,"pid"'), rf"7 runs .* with tfmon 9.9, schema {SCHEMA + 1}; this", 2),
        (GREETING + b'{"type":"Known","known":{"new":1}}\n', "process 7 runs train.py with tfmon 9.9, schema", 2),
        (GREETING, "process 7, which ran train.py, has ended unexpectedly", 1),
        (b"", "has ended", 1),
        (b"nonsense\n", "message cannot be read", 2),
        (b'{"type":"Other"}\n', "message cannot be read", 2),
        (codec.encode(Answer(exit_code=3, error="no such file", hint="name another")), "no such file · name", 3),
    ],
)
def test_what_cannot_be_followed_is_refused_in_a_line(line, said, code):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(line)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(TfmonError, match=said) as raised:
            connected(ours)
    assert raised.value.exit_code == code


@pytest.fixture
def runtime(tmp_path_factory, monkeypatch):
    with tempfile.TemporaryDirectory(prefix="tfmon-") as folder:
        monkeypatch.setenv(sockets.FOLDER_VARIABLE, f"{folder}/of")
        yield Path(folder, "of")


def test_it_is_found_by_process_while_it_listens_and_again_when_the_folder_was_lost(run, runtime):
    run.server.listen()
    (listed,) = sockets.under_way()
    assert Path(listed.path).stat().st_mode & 0o777 == 0o600 and runtime.stat().st_mode & 0o777 == 0o700
    assert sockets.find(str(os.getpid())) == sockets.find("last") == listed
    shutil.rmtree(runtime)
    assert sockets.find("last") is None
    run.server.listen()
    assert known(connected(sockets.connect(sockets.find("last").path)).session.snapshot())
    run.server.close(0)
    assert not list(sockets.under_way())


def test_a_dead_socket_goes_and_other_users_and_long_paths_are_refused(run, runtime, monkeypatch, tmp_path):
    with sockets.listen() as dead:
        path = dead.getsockname()
    assert list(runtime.iterdir())
    assert not list(sockets.under_way())
    assert not list(runtime.iterdir())
    run.server.listen()
    monkeypatch.setattr(sockets.os, "getuid", lambda: 12_345)
    with pytest.raises(PermissionError, match="belongs to another user"):
        sockets.connect(path)
    with pytest.raises(OSError, match="not a folder of yours"):
        sockets.listen()
    assert not list(sockets.under_way())
    monkeypatch.undo()
    run.server.close(0)
    monkeypatch.setenv(sockets.FOLDER_VARIABLE, str(tmp_path / ("x" * 100)))
    with pytest.raises(OSError, match="too long for a socket; set TFMON_RUNTIME"):
        sockets.listen()


def test_threads_that_die_cost_one_viewer_and_not_the_run(run, runtime, monkeypatch, capsys):
    viewer, own, doomed = run.watch(), threads.guarded, {"tfmon-viewer", "tfmon-listen"}

    def guarded(name, work, failed) -> None:
        own(name, (lambda: 1 // 0) if name in doomed else work, failed)

    monkeypatch.setattr(threads, "guarded", guarded)
    with pytest.raises(TfmonError):
        connected(run.connect())
    run.server.listen()
    wait_for(lambda: "tfmon-listen failed" in capsys.readouterr().err, what="the listener is dead")
    doomed.clear()
    run.server.listen()
    wait_for(lambda: list(sockets.under_way()), what="it listens again")
    assert viewer.ask(Command("repeat"))
    doomed.add("tfmon-view")
    follows_no_more = run.watch()
    assert follows_no_more.join(PATIENCE_S) and follows_no_more.ended is None
    run.server.close(0)

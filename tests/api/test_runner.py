"""Who watches a run in another process knows the same, and requests the same, as the screen of before."""

import os
import random
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.ui import Demo, FakeExperiments
from support.waiting import PATIENCE_S, wait_for

from tfmon.api import server, sockets
from tfmon.api.program import Program
from tfmon.api.run_base import Interruption
from tfmon.api.server import MOST_WAITING, Server
from tfmon.api.sockets import Answer, Ended, Follow, FromRunner, Request, RunnerGreeting
from tfmon.api.viewer import Viewer
from tfmon.errors import EXIT_DEVICE_ABSENT, DeviceAbsentError, TfmonError, UsageError
from tfmon.model import codec
from tfmon.model.control_messages import (
    BeginRace,
    BeginTuning,
    ChangeKnob,
    ChangeLanes,
    Perform,
    ProfileLanes,
)
from tfmon.model.events import BadLine
from tfmon.model.header import SCHEMA
from tfmon.model.lane_state import PAUSED
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

    perform, all_over = Program.perform, Program.all_over
    suspenders, suspend_lanes, continue_lanes = Program.suspenders, Program.suspend_lanes, Program.continue_lanes


@dataclass
class Run:
    """A run without processes, and the viewers of it."""

    demo: Demo = field(default_factory=lambda: Demo(mode="turns").go())
    experiments: FakeExperiments = field(default_factory=FakeExperiments)
    suspended: list[str] = field(default_factory=list)
    viewers: list[Viewer] = field(default_factory=list)

    def __post_init__(self) -> None:
        suspension = SimpleNamespace(
            suspend_lanes=lambda: self.suspended.append("suspend"),
            continue_lanes=lambda: self.suspended.append("continue"),
        )
        self.demo.controls.suspension, self.demo.controls.all_over = suspension, False
        self.demo.controls.calls = []
        program = FakeProgram(
            session=self.demo.session,
            lanes=self.demo.controls,
            experiments=self.experiments,
            repeat=lambda: "tfmon race conv",
            examine=lambda: "x" * 10_000,
            profiles=SimpleNamespace(text=self.profile, pair=self.profile),
            watch_gpus=lambda: "",
        )
        self.interrupted = Interruption(lambda: None, lambda: True)
        self.server = Server(program, self.interrupted)
        self.server.begin(("something to say",))

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


def test_a_viewer_knows_what_is_known_and_follows(run):
    run.demo.race(3, (1_000, 5_500))
    viewer = run.watch()
    assert known(viewer.session.snapshot()) == known(run.demo.session.snapshot())
    run.demo.race(3, (1_000, 5_500))
    wait_for(lambda: run.caught_up(viewer.session), what="the viewer follows")
    assert len(viewer.session.snapshot().lanes[0].points) > 10


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


def test_one_that_does_not_read_holds_nothing_up_and_then_gets_what_is_known(run):
    connection = run.connect()
    connection.sendall(codec.encode(Request(number=1, message=Follow(terminal="pts/9"))))
    wait_for(lambda: run.server.viewers[0].follows, what="it watches")
    (slow,) = run.server.viewers
    quick = run.watch()
    run.print(20 * MOST_WAITING)
    assert len(slow._waiting) <= MOST_WAITING
    wait_for(lambda: run.caught_up(quick.session), what="the other one follows")
    assert slow._behind
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
    connection.close()


def test_keys_become_requests_and_the_others_learn_who_pressed_them(run):
    one, other, told = run.watch(), run.watch(), []
    other.tell = told.append
    one.send(ChangeKnob("cpu", "batch_size", 64))
    one.send(ChangeLanes("pause", ("cpu", "gpu:0")))
    one.ask(BeginRace("conv"))
    wait_for(lambda: len(told) == 3, what="the other is told of each")
    assert run.calls == [("set_knob", "cpu", "batch_size", 64), ("pause", ("cpu", "gpu:0")), ("race", "conv")]
    assert told[0].startswith("process ") and told[0].endswith("change knob cpu, batch_size, 64")
    wait_for(lambda: run.caught_up(one.session), what="the one that asked sees it, too")
    assert "batch_size" in one.session.snapshot().lane("cpu").changes.requested


def test_what_is_wrong_with_a_request_is_said_to_the_one_that_made_it(run):
    viewer = run.watch()
    assert viewer.repeat() == "tfmon race conv"
    assert viewer.ask(Perform("examine")) == "x" * 10_000
    assert viewer.ask(Perform("undo")) == "prefetch auto"
    viewer.ask(BeginTuning("cpu", everything=True))
    assert run.experiments.calls[-1] == ("start_tuning", "cpu", True)
    run.experiments.refusal = "there is nothing to take back"
    with pytest.raises(TfmonError, match="nothing to take back"):
        viewer.ask(Perform("undo"))
    with pytest.raises(TfmonError, match="no profile of cpu · wait") as raised:
        viewer.ask(ProfileLanes(("cpu",)))
    assert raised.value.exit_code == EXIT_DEVICE_ABSENT
    with pytest.raises(TfmonError, match="profile lanes cpu, gpu:0 failed: TypeError"):
        viewer.ask(ProfileLanes(("cpu", "gpu:0")))


def test_the_first_end_ends_it_and_names_the_signal(run):
    one, other = run.watch(), run.watch()
    one.request_end("SIGTERM")
    wait_for(lambda: run.interrupted.count, what="it is to end")
    other.request_end()
    assert other.repeat()
    assert (run.interrupted.count, run.interrupted.reason) == (1, "interrupted by SIGTERM")
    run.server.close(7)
    for viewer in (one, other):
        assert viewer.join(PATIENCE_S)
        assert viewer.ended == Ended(exit_code=7)


def test_the_end_waits_only_briefly_for_one_that_does_not_read(run, monkeypatch):
    monkeypatch.setattr(server, "FAREWELL_S", 0.01)
    connection = run.connect()
    connection.sendall(codec.encode(Request(number=1, message=Follow(terminal=""))))
    wait_for(lambda: run.server.viewers[0].follows, what="it watches")
    run.print(20 * MOST_WAITING)
    run.server.close(0)
    connection.close()


def test_one_that_sends_what_cannot_be_read_is_dropped_and_the_others_stay(run, capsys):
    viewer, wild = run.watch(), run.connect()
    wild.sendall(b'{"type":"Request","number":"x"}\n')
    wild.settimeout(PATIENCE_S)
    while wild.recv(65_536):
        pass
    assert "invalid request" in capsys.readouterr().err
    assert viewer.repeat()


def test_a_runner_that_dies_is_said_and_no_request_waits_for_it(run):
    viewer, told = run.watch(), []
    viewer.tell = told.append
    run.server.viewers[0].drop()
    assert viewer.join(PATIENCE_S)
    wait_for(lambda: told, what="it is said")
    assert "has ended without a word" in told[0] and "tfmon replay last" in told[0]
    with pytest.raises(TfmonError, match="has ended without a word"):
        viewer.repeat()


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
    wait_for(lambda: run.suspended == ["suspend", "continue"], what="the lanes continue")
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
    monkeypatch.setattr(server, "RunnerGreeting", lambda **_: booted())
    remote = SimpleNamespace(host=SimpleNamespace(name="gpu2"), lost=lambda name: TfmonError(f"{name} is lost"))
    viewer = connected(run.connect(), remote=remote)
    assert 5 <= viewer.session.snapshot().at_ns / 1e9 < 5 + PATIENCE_S
    assert (viewer.name, viewer.lost_error().message) == ("gpu2/7", "gpu2/7 is lost")
    viewer.leave()


@pytest.fixture
def greeted() -> Iterator[Callable[[bytes], socket.socket]]:
    """Return a function that makes a connection with a first message."""
    opened = []

    def make(line: bytes) -> socket.socket:
        ours, theirs = socket.socketpair()
        opened.extend((ours, theirs))
        theirs.sendall(line)
        theirs.shutdown(socket.SHUT_WR)
        return ours

    yield make
    for one in opened:
        one.close()


def test_a_runner_of_another_schema_is_refused_with_both_versions(greeted):
    line = codec.encode(RunnerGreeting(schema=SCHEMA + 1, tfmon="9.9", pid=7, scenario="train.py"))
    with pytest.raises(UsageError, match=rf"process 7 runs train.py with tfmon 9.9, schema {SCHEMA + 1}; this is"):
        connected(greeted(line.replace(b'"pid"', b'"new":1,"pid"')))


def test_a_runner_of_the_same_schema_that_cannot_be_understood_is_refused_in_the_same_way(greeted):
    line = codec.encode(RunnerGreeting(schema=SCHEMA, tfmon="9.9", pid=7, scenario="train.py"))
    with pytest.raises(UsageError, match=r"process 7 runs train\.py with tfmon 9\.9"):
        connected(greeted(line + b'{"type":"Known","known":{"new":1}}\n'))


@pytest.mark.parametrize("line", [b"", b"nonsense\n", b'{"type":"Other"}\n'])
def test_what_is_no_runner_is_refused_in_a_line(greeted, line):
    with pytest.raises(TfmonError):
        connected(greeted(line))


def test_a_run_that_could_not_begin_says_so_with_its_exit_code(greeted):
    with pytest.raises(TfmonError, match="no such file") as raised:
        connected(greeted(codec.encode(Ended(exit_code=3, error="no such file", hint="name another"))))
    assert raised.value.exit_code == 3


@pytest.fixture
def runtime(tmp_path_factory, monkeypatch):
    with tempfile.TemporaryDirectory(prefix="tfmon-") as folder:
        monkeypatch.setenv(sockets.FOLDER_VARIABLE, f"{folder}/of")
        yield Path(folder, "of")


def test_it_is_found_by_process_while_it_listens_and_again_when_the_folder_was_lost(run, runtime):
    run.server.listen()
    (listed,) = sockets.under_way()
    assert listed.path.stat().st_mode & 0o777 == 0o600 and runtime.stat().st_mode & 0o777 == 0o700
    assert sockets.find(str(os.getpid())) == sockets.find("last") == listed
    shutil.rmtree(runtime)
    assert sockets.find("last") is None
    run.server.listen()
    assert known(connected(sockets.connect(sockets.find("last").path)).session.snapshot())
    run.server.close(0)
    assert not list(sockets.under_way())


def test_the_socket_of_a_dead_runner_goes_and_other_users_are_refused(run, runtime, monkeypatch):
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


def test_a_path_that_is_too_long_for_a_socket_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv(sockets.FOLDER_VARIABLE, str(tmp_path / ("x" * 100)))
    with pytest.raises(OSError, match="too long for a socket; set TFMON_RUNTIME"):
        sockets.listen()


def test_threads_that_die_cost_one_viewer_and_not_the_run(run, runtime, monkeypatch, capsys):
    viewer = run.watch()
    own, doomed = threads.guarded, {"tfmon-viewer", "tfmon-listen"}

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
    assert viewer.repeat()
    run.server.close(0)


def test_a_viewer_whose_thread_dies_knows_that_it_follows_no_more(run, monkeypatch):
    own = threads.guarded

    def guarded(name, work, failed) -> None:
        own(name, (lambda: 1 // 0) if name == "tfmon-view" else work, failed)

    monkeypatch.setattr(threads, "guarded", guarded)
    viewer = run.watch()
    assert viewer.join(PATIENCE_S)
    assert viewer.ended is None

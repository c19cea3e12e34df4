"""The child's ends of its pipes: nothing is lost or torn, and a lane does not outlive its monitor."""

import os
import queue
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.processes import gone
from support.waiting import PATIENCE_S, wait_for

from tfmon.model.codec import decode_event, encode_message
from tfmon.model.lane_events import Finished
from tfmon.model.requests import Pause, Run, SetKnob, Stop
from tfmon.trainer import channel
from tfmon.trainer.channel import GRACE_S, Reporter, start_inbox

ROOT = str(Path(__file__).parents[2])
HANG = """
import sys, threading
from tfmon.trainer.channel import Mailbox, start_inbox
start_inbox(int(sys.argv[1]), Mailbox().post, sys.exit)
print("up", flush=True)
threading.Event().wait()
"""
MONITOR = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], process_group=0)
print(child.pid, flush=True)
child.wait()
"""
START = "from tfmon.trainer import channel\n"
HOLDS_THE_LOCK = START + "channel.die_with_parent()\nprint('up', flush=True)\nsum(range(10**14))\n"
WITH_A_GRANDCHILD = (
    START
    + "import subprocess\ngrandchild = subprocess.Popen(['sleep', '600'])\n"
    + "print(grandchild.pid, flush=True)\nchannel.end_group()\n"
)
LEADS_NO_GROUP = (
    START
    + "import time\nchannel.end_group()\nchannel.die_with_parent()\n"
    + "print('up', flush=True)\ntime.sleep(600)\n"
)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read_fd, write_fd = os.pipe()
    os.set_blocking(read_fd, False)
    yield read_fd, write_fd
    os.close(read_fd)
    os.close(write_fd)


def said(number: int) -> Finished:
    return Finished(at_ns=0, steps=number)


def read_all(fd: int) -> bytes:
    chunks = []
    while True:
        try:
            chunks.append(os.read(fd, 1 << 20))
        except BlockingIOError:
            return b"".join(chunks)


def test_lines_stay_whole_and_in_order_when_the_pipe_was_full(pipe):
    reporter = Reporter(pipe[1])
    taken = next(number for number in range(1_000_000) if not reporter.offer(said(number)))
    assert taken > 100 and not reporter.offer(said(-1))
    reporter.send(said(taken))
    reporter.send(said(taken + 1))
    data = read_all(pipe[0])
    assert reporter.offer(said(taken + 2))
    data += read_all(pipe[0])
    assert data.endswith(b"\n")
    events = [decode_event(line, "") for line in data.splitlines()]
    assert events == [said(number) for number in range(taken + 3)]


def test_an_event_is_written_once_if_a_signal_interrupts_its_writer(pipe, monkeypatch):
    reporter, write = Reporter(pipe[1]), os.write

    def interrupted(fd: int, data: bytes) -> int:
        monkeypatch.undo()
        write(fd, data)
        raise KeyboardInterrupt

    monkeypatch.setattr(channel.os, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reporter.offer(said(1))
    reporter.send(said(2))
    assert [decode_event(line, "") for line in read_all(pipe[0]).splitlines()] == [said(1), said(2)]


def test_what_may_wait_goes_with_the_next_event_in_one_piece(pipe):
    reporter = Reporter(pipe[1])
    assert reporter.offer(said(1), later=True) and reporter.offer(said(2), later=True)
    assert not read_all(pipe[0])
    reporter.send(said(3))
    assert [decode_event(line, "") for line in read_all(pipe[0]).splitlines()] == [said(1), said(2), said(3)]
    reporter.offer(said(4), later=True)
    reporter.drain(timeout_s=1.0)
    assert read_all(pipe[0]), "a child that ends says it"


def test_a_lane_ends_when_nobody_can_hear_it_any_more():
    codes: list[int] = []
    read_fd, write_fd = os.pipe()
    reporter = Reporter(write_fd, end=codes.append)
    os.close(read_fd)
    reporter.send(said(1))
    os.close(write_fd)
    assert codes == [0]


def test_a_request_in_pieces_comes_whole_and_an_unreadable_line_not(monkeypatch):
    delivered: queue.Queue[Any] = queue.Queue()
    monkeypatch.setattr(channel, "exit_now", delivered.put)  # it would end this process
    read_fd, fd = os.pipe()
    inbox = start_inbox(read_fd, delivered.put, delivered.put)
    request = SetKnob(request=1, knob="prefetch", value="auto")
    line = encode_message(request)
    os.write(fd, b'\xff{\n\n{"v":1,"type":"Dance"}\n' + encode_message(Run()) + line[:9])
    assert delivered.get(timeout=PATIENCE_S) == Run()
    os.write(fd, line[9:] + encode_message(Pause()))
    assert delivered.get(timeout=PATIENCE_S) == request
    assert delivered.get(timeout=PATIENCE_S) == Pause()
    os.close(fd)
    inbox.join(PATIENCE_S)
    os.close(read_fd)


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start processes with the given code; they are killed after the test."""
    started: list[subprocess.Popen[str]] = []

    def run(code: str, *words: str, **more: Any) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", code, *words]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, **more))
        return started[-1]

    yield run
    for each in started:
        each.kill()
        each.communicate()


@pytest.mark.process
@pytest.mark.parametrize("stopped", [False, True], ids=["pipe ends", "stop"])
def test_a_process_that_hangs_ends(start, stopped):
    read_fd, write_fd = os.pipe()
    child = start(HANG, str(read_fd), pass_fds=[read_fd])
    os.close(read_fd)
    assert child.stdout.readline() == "up\n"
    if stopped:
        os.write(write_fd, encode_message(Stop()))
        assert child.wait(GRACE_S + PATIENCE_S) == 0
    os.close(write_fd)
    assert child.wait(PATIENCE_S) == 0


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's death")
@pytest.mark.skipif(sys.version_info < (3, 11), reason="the test starts a process group as 3.11 can")
def test_one_that_holds_pythons_lock_for_ever_dies_with_its_monitor(start):
    parent = start(MONITOR, HOLDS_THE_LOCK)
    child = psutil.Process(int(parent.stdout.readline()))
    assert parent.stdout.readline() == "up\n"
    parent.kill()
    try:
        wait_for(lambda: gone(child), what="the child is gone")
    finally:
        if not gone(child):
            child.kill()


@pytest.mark.process
@pytest.mark.skipif(sys.version_info < (3, 11), reason="the test starts a process group as 3.11 can")
def test_the_end_of_the_group_takes_grandchildren_along(start):
    parent = start(MONITOR, WITH_A_GRANDCHILD)
    child = psutil.Process(int(parent.stdout.readline()))
    grandchild = psutil.Process(int(parent.stdout.readline()))
    wait_for(lambda: gone(child) and gone(grandchild), what="both are gone")


@pytest.mark.process
def test_one_that_leads_no_group_ends_nobody_and_sigterm_ends_it_though_it_dies_with_its_parent(start):
    child = start(LEADS_NO_GROUP)
    assert child.stdout.readline() == "up\n"
    child.terminate()
    assert child.wait(PATIENCE_S) == -signal.SIGTERM

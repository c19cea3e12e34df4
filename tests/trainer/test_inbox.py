"""The child's end of the knob pipe."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tfmon
from tfmon.model.codec import encode_message
from tfmon.model.requests import Pause, Run, SetKnob, Stop
from tfmon.trainer import channel
from tfmon.trainer.channel import GRACE_S, Inbox

pytestmark = pytest.mark.trainer

DEADLINE_S = 30.0
HANG = """
import sys, threading
from tfmon.trainer.channel import Inbox
from tfmon.trainer.channel import Mailbox
Inbox(int(sys.argv[1]), Mailbox().post).start()
print("up", flush=True)
threading.Event().wait()
"""


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, queue.Queue[Any]]]:
    """An inbox in this process, which must not end it; its pipe, and what it delivers."""
    delivered: queue.Queue[Any] = queue.Queue()
    monkeypatch.setattr(channel, "exit_now", lambda code: delivered.put(("left", code)))
    read_fd, write_fd = os.pipe()
    inbox = Inbox(read_fd, delivered.put)
    inbox.start()
    yield write_fd, delivered
    os.close(write_fd)
    inbox.join(DEADLINE_S)
    os.close(read_fd)


def test_a_request_in_pieces_is_delivered_whole(heard: tuple[int, queue.Queue[Any]]) -> None:
    fd, delivered = heard
    request = SetKnob(request=1, knob="prefetch", value="auto")
    line = encode_message(request)
    os.write(fd, encode_message(Run()) + line[:9])
    assert delivered.get(timeout=DEADLINE_S) == Run()
    os.write(fd, line[9:] + encode_message(Pause()))
    assert delivered.get(timeout=DEADLINE_S) == request
    assert delivered.get(timeout=DEADLINE_S) == Pause()


def test_an_unreadable_line_is_passed_over(heard: tuple[int, queue.Queue[Any]]) -> None:
    fd, delivered = heard
    os.write(fd, b'\xff{\n\n{"v":1,"type":"Dance"}\n' + encode_message(Run()))
    assert delivered.get(timeout=DEADLINE_S) == Run()


@pytest.fixture
def hanging() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process whose main thread hangs, and the writing end of its inbox's pipe."""
    read_fd, write_fd = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-c", HANG, str(read_fd)],
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=[read_fd],
        cwd=Path(tfmon.__file__).parents[1],
    )
    os.close(read_fd)
    assert child.stdout is not None
    assert child.stdout.readline() == "up\n"
    yield child, write_fd
    child.kill()
    child.wait()
    child.stdout.close()


def test_the_end_of_the_pipe_ends_a_process_that_hangs(hanging: tuple[subprocess.Popen[str], int]) -> None:
    child, fd = hanging
    os.close(fd)
    assert child.wait(DEADLINE_S) == 0


def test_stop_ends_a_process_that_hangs(hanging: tuple[subprocess.Popen[str], int]) -> None:
    child, fd = hanging
    os.write(fd, encode_message(Stop()))
    assert child.wait(GRACE_S + DEADLINE_S) == 0
    os.close(fd)

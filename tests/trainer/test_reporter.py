"""The child's end of the metric pipe, while nobody reads the other one."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tfmon.model.codec import decode_event
from tfmon.model.lane_events import Finished
from tfmon.trainer import channel
from tfmon.trainer.channel import Reporter

pytestmark = pytest.mark.trainer


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


def fill(reporter: Reporter) -> int:
    """Offer events until one is refused; return how many were taken."""
    for number in range(1_000_000):
        if not reporter.offer(said(number)):
            return number
    raise AssertionError("the pipe took a million events")


def test_a_full_pipe_refuses_windows_and_does_not_block(pipe: tuple[int, int]) -> None:
    reporter = Reporter(pipe[1])
    assert fill(reporter) > 100
    assert not reporter.offer(said(-1))


def test_lines_stay_whole_and_in_order_when_the_pipe_was_full(pipe: tuple[int, int]) -> None:
    reporter = Reporter(pipe[1])
    taken = fill(reporter)
    reporter.send(said(taken))
    reporter.send(said(taken + 1))
    data = read_all(pipe[0])
    assert reporter.offer(said(taken + 2))
    data += read_all(pipe[0])
    assert data.endswith(b"\n")
    events = [decode_event(line, "") for line in data.splitlines()]
    assert events == [said(number) for number in range(taken + 3)]


def test_drain_gives_up_on_a_pipe_that_nobody_reads(pipe: tuple[int, int]) -> None:
    reporter = Reporter(pipe[1])
    taken = fill(reporter)
    reporter.send(said(taken))
    reporter.drain(timeout_s=0.01)
    assert not reporter.offer(said(-1))


def test_a_lane_ends_when_nobody_can_hear_it_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    class LeftError(Exception):
        pass

    def leave(code: int) -> None:
        raise LeftError(code)

    monkeypatch.setattr(channel, "exit_now", leave)
    read_fd, write_fd = os.pipe()
    reporter = Reporter(write_fd)
    os.close(read_fd)
    with pytest.raises(LeftError, match="0"):
        reporter.send(said(1))
    os.close(write_fd)

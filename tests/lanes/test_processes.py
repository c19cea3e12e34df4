"""A lane's process: its events and its output arrive, and how it ends."""

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as some
from support.hosts import FakeSsh
from support.lanes import CHILDREN, Heard, plan_of
from support.processes import gone, suspended
from support.slow import slow_except
from support.waiting import HANGS_S, PATIENCE_S, wait_for

from tfmon.lanes import script_input
from tfmon.lanes.child_output import (
    FLUSH_NS,
    LINE_CHARACTERS,
    NEWS_BYTES,
    TAIL_BYTES,
    TAIL_LINES,
    TELL_EVERY_NS,
    ChildOutput,
)
from tfmon.lanes.lane_process import LaneProcess, LocalProcess, wait_ended
from tfmon.model.event_base import Event
from tfmon.model.events import LaneEnded, LanePrinted
from tfmon.model.lane_events import PhaseEntered
from tfmon.model.requests import Run, Stop

pytestmark = pytest.mark.process

Begin = Callable[..., Heard]


@pytest.fixture(params=slow_except("here", ["here", "there"]))
def begin(request, tmp_path, monkeypatch) -> Iterator[Begin]:
    if request.param == "here":
        yield request.getfixturevalue("start")
        return
    ssh = FakeSsh(tmp_path, monkeypatch)
    ssh.behave(halves=True)
    yield lambda says, **environment: ssh.connect().start(says, **environment)
    ssh.close()


def test_ten_thousand_lines_arrive_in_order_and_none_is_lost(begin):
    child = begin("ten_thousand_lines")
    assert child.end.exit_code == 0
    stamps = [event.at_ns for event in child.events if isinstance(event, PhaseEntered)]
    assert len(stamps) == 10_000 and stamps == sorted(stamps)


def test_lines_that_cannot_be_read_are_told_and_those_around_them_arrive(begin):
    child = begin("bad_lines")
    assert child.end
    assert {event.lane for event in child.events} == {child.process.lane}
    assert child.phases == ["first", "last"]
    assert len(child.problems) == 5 and "JSON" in child.problems[0] and "protocol 99" in child.problems[2]
    assert child.problems[-1] == "the last line was cut off"


def test_noise_does_not_block_the_child_and_its_end_is_kept_clean(begin):
    child = begin("noise")
    end = child.end
    assert child.phases == ["said it all"]
    assert end.output_tail[-1] == "the last line"
    assert end.output_tail[-2] == "half of it is \ufffd\ufffd no text"
    assert end.output_tail[-3].startswith("warning 9999: ...."), "nothing of tfmon's own profiles"
    assert len(end.output_tail) <= TAIL_LINES and sum(map(len, end.output_tail)) <= TAIL_BYTES
    told = [event for event in child.events if isinstance(event, LanePrinted)]
    assert told[-1].lines[-1] == "the last line" and child.events.index(told[-1]) < child.events.index(end)
    assert not any("\x1b" in line for line in [*end.output_tail, *child.printed])


def test_the_environment_is_the_monitors_with_what_the_plan_adds_and_takes_away(begin, monkeypatch):
    monkeypatch.setenv("TAKEN", "still there")
    child = begin("its_environment", GIVEN="here", TAKEN=None)
    assert child.end and child.phases == ["here", "not set"]


@pytest.mark.parametrize(
    ("number", "told"), [(signal.SIGKILL, "SIGKILL"), (signal.SIGRTMIN + 3, f"signal {signal.SIGRTMIN + 3}")]
)
def test_a_signal_from_outside_is_told_by_its_name_or_number(begin, number, told):
    child = begin("nothing_for_ever")
    child.wait_for_phase("waiting")
    os.kill(child.pid, number)
    assert (child.end.exit_code, child.end.signal, child.end.requested) == (None, told, False)


def test_a_child_ends_even_if_a_grandchild_holds_its_pipes_and_that_ends_too(begin):
    child = begin("a_grandchild_left_behind")
    grandchild = child.said_pid()
    assert child.end.exit_code == 0
    wait_for(lambda: gone(grandchild), what="the grandchild is gone")


def test_a_suspended_child_does_not_run_until_it_is_continued(begin):
    child = begin("a_listener")
    child.said_pid()
    child.process.suspend()
    wait_for(lambda: suspended(child.pid), what="suspended")
    assert child.process.send(Stop())
    assert suspended(child.pid) and not child.process.ended
    child.process.continue_()
    assert child.end.exit_code == 0


def test_a_child_that_somebody_else_stopped_stays_stopped_until_its_end_is_requested_which_is_told(begin):
    child = begin("a_listener")
    assert child.said_pid() == child.pid
    os.kill(child.pid, signal.SIGSTOP)
    wait_for(lambda: suspended(child.pid), what="stopped")
    child.process.continue_()
    assert suspended(child.pid)
    child.process.request_end()
    assert (child.end.exit_code, child.end.signal, child.end.requested) == (0, None, True)
    assert not child.process.send(Stop()) and gone(child.pid)


def test_one_that_waits_for_its_turn_stays_suspended_when_tfmon_goes_on(start):
    child = start("a_listener")
    child.said_pid()
    child.suspend()
    child.hold()
    child.go_on()
    wait_for(lambda: suspended(child.pid), what="suspended")


def test_a_child_has_not_ended_before_its_end_is_told():
    being_told, go_on = threading.Event(), threading.Event()
    ends = []

    def sink(_: LaneProcess, event: Event) -> None:
        if isinstance(event, LaneEnded):
            ends.append((event.exit_code, event.signal, event.requested))
            being_told.set()
            go_on.wait(PATIENCE_S)

    child = LocalProcess(plan_of("an_exit_code"), sink)
    child.start_reading(pytest.fail)
    try:
        assert being_told.wait(PATIENCE_S)
        assert not child.ended
        assert not wait_ended([child], 0.05)
    finally:
        go_on.set()
    assert wait_ended([child], PATIENCE_S)
    assert child.ended
    assert ends == [(3, None, False)]


@pytest.mark.parametrize("state", ["awake", "suspended"])
def test_a_child_does_not_outlive_a_monitor_that_is_killed(state):
    monitor = subprocess.Popen(
        [sys.executable, str(CHILDREN / "monitor.py"), state], stdout=subprocess.PIPE, text=True
    )
    with monitor:
        assert monitor.stdout is not None
        pid = int(monitor.stdout.readline())
        if state == "suspended":
            wait_for(lambda: suspended(pid), what="suspended")
        assert not gone(pid)
        monitor.kill()
    try:
        wait_for(lambda: gone(pid), what="the child is gone")
    finally:
        if not gone(pid):
            os.kill(pid, signal.SIGKILL)


def test_a_flood_does_not_keep_another_lane_from_being_heard(start):
    other = start("a_beat", lane="other")
    other.wait_for_phase("listening")
    flood = start("a_flood_until_told", lane="flood")
    flood.wait_for_phase("flood")
    for heard in (1, 2, 3):
        assert other.send(Run())
        other.wait_for_phase("heard", heard)
    assert "end of the flood" not in flood.phases
    assert flood.send(Run())
    assert flood.end.exit_code == 0
    assert flood.phases[-1] == "end of the flood" and not flood.problems


def test_a_pipe_is_kept_for_each_process_up_to_a_limit_and_one_that_gets_only_a_part_is_told(monkeypatch):
    monkeypatch.setattr(script_input, "KEPT_BYTES", 2)
    source, sink = os.pipe()
    passed, told = script_input.ScriptInput(source, single=False), queue.Queue()
    os.write(sink, b"ab")
    first = passed.open(told.put)
    assert os.read(first, 2) == b"ab"
    os.write(sink, b"cd")
    assert os.read(first, 2) == b"cd", "it goes on after the limit"
    restarted = passed.open(told.put)
    assert os.read(restarted, 2) == b"ab"
    assert (os.read(restarted, 1), told.get(timeout=HANGS_S)) == (b"", script_input.TOO_LONG)
    os.close(sink)
    assert os.read(first, 1) == b"" and told.empty()
    for fd in (source, first, restarted):
        os.close(fd)


LATER = TELL_EVERY_NS + 1


def told(*chunks: bytes) -> list[LanePrinted]:
    output, news = ChildOutput("cpu"), []
    for number, chunk in enumerate(chunks, 1):
        output.take(chunk)
        news.append(output.news(number * LATER))
    news.append(output.news(0, last=True))
    return [new for new in news if new is not None]


def lines(*chunks: bytes) -> list[str]:
    return [line for one in told(*chunks) for line in one.lines]


def test_news_are_told_a_few_times_a_second_at_most():
    output = ChildOutput("cpu")
    output.take(b"one\n")
    assert output.news(LATER)
    output.take(b"two\n")
    assert output.news(LATER + TELL_EVERY_NS // 2) is None
    assert output.news(2 * LATER).lines == ("two",)


def test_lines_are_safe_and_short():
    assert lines(b"\x1b[31mred\x1b[0m\x07 \xff\n\n   \n") == ["red \ufffd"]
    (line,) = lines(b"x" * 10_000 + b"\n")
    assert len(line) == LINE_CHARACTERS
    output = ChildOutput("cpu")  # a line without end is not kept
    for _ in range(100):
        output.take(b"x" * 65_536)
    assert len(output._news) <= NEWS_BYTES and len(output._tail) <= TAIL_BYTES
    assert output.news(LATER).dropped_bytes > 6_000_000


def test_output_that_is_written_at_the_exit_was_printed_before_the_error():
    output = ChildOutput("cpu")
    output.take(b"first\n")
    output.take_error(b"no data\n")
    output.take(b"buffered\n")
    output.take(b"more\n")
    assert output.tail() == ("first", "buffered", "more", "no data")
    output._error_ns -= FLUSH_NS
    output.take(b"long after\n")
    assert output.tail()[-2:] == ("no data", "long after")


@given(some.lists(some.binary(max_size=60), max_size=20))
def test_however_it_is_cut_the_same_lines_are_told(chunks):
    assert lines(*chunks) == lines(b"".join(chunks))

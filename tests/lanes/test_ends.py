"""What a child here says arrives, whatever it is, and how it ends: nothing is left of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import psutil
import pytest
from support.lanes import CHILDREN
from support.processes import gone, suspended
from support.waiting import PATIENCE_S, wait_for

from tfmon.lanes.pipes import MAX_LINE_BYTES
from tfmon.lanes.process import LaneProcess, LocalProcess
from tfmon.model.events import Event, LaneEnded
from tfmon.model.requests import Run, Stop

pytestmark = pytest.mark.process


def test_a_child_has_not_ended_before_its_end_is_told(reader):
    being_told, go_on = threading.Event(), threading.Event()
    ends = []

    def sink(_: LaneProcess, event: Event) -> None:
        if isinstance(event, LaneEnded):
            ends.append((event.exit_code, event.signal, event.requested))
            being_told.set()
            go_on.wait(PATIENCE_S)

    child = LocalProcess("cpu", Path(sys.executable), {"SAYS": "an_exit_code"}, sink, CHILDREN / "speaker.py")
    reader.watch(child)
    try:
        assert being_told.wait(PATIENCE_S)
        assert not child.ended
        assert not reader.wait_ended([child], 0.05)
    finally:
        go_on.set()
    assert reader.wait_ended([child], PATIENCE_S)
    assert child.ended
    assert ends == [(3, None, False)]


def test_a_child_without_pipes_is_still_seen_to_end(start):
    child = start("closed_pipes")
    child.wait_for_phase("closing")
    wait_for(lambda: not child.metrics_open and not child.output_open, what="closed pipes")
    assert not child.ended
    child.kill(signal.SIGTERM)
    assert child.end.signal == "SIGTERM"


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


def test_a_python_that_does_not_exist_leaves_no_descriptor_open():
    before = psutil.Process().num_fds()
    with pytest.raises(FileNotFoundError):
        LocalProcess("cpu", Path("/nowhere/python"), {}, lambda *_: None)
    assert psutil.Process().num_fds() == before


def test_a_request_to_an_ended_child_does_not_reach_whoever_got_its_descriptors(start):
    ended = start("an_exit_code")
    assert ended.end
    reading, writing = os.pipe()  # The lowest free numbers: those that the child's pipes had.
    spares = [os.dup(writing) for _ in range(8)]
    os.set_blocking(reading, False)
    try:
        assert ended.send(Stop()) is False
        with pytest.raises(BlockingIOError):
            os.read(reading, 1)
    finally:
        for fd in (reading, writing, *spares):
            os.close(fd)


# ---------------------------------------------------------------- what a child says until then


def test_an_endless_line_is_dropped_without_being_kept(start):
    tracemalloc.start()
    try:
        child = start("an_endless_line")
        assert child.end
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert child.problems == [f"a line longer than {MAX_LINE_BYTES} bytes"]
    assert child.phases == ["after"]
    assert most < 5_000_000


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

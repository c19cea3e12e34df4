"""What a child's state says, and when: nobody may learn that a child is over before he can learn how."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest
from support.lanes import CHILDREN
from support.waiting import wait_for

from tfmon.lanes.process import LaneProcess
from tfmon.model.events import Event, LaneEnded

pytestmark = pytest.mark.process


def test_a_child_has_not_ended_before_its_end_is_told(reader):
    being_told, go_on = threading.Event(), threading.Event()

    def sink(_: LaneProcess, event: Event) -> None:
        if isinstance(event, LaneEnded):
            being_told.set()
            go_on.wait(30)

    script = CHILDREN / "speaker.py"
    child = LaneProcess("cpu", Path(sys.executable), {"SAYS": "an_exit_code"}, sink, script)
    reader.watch(child)
    try:
        assert being_told.wait(30)
        assert not child.ended
        assert not reader.wait_ended([child], 0.05)
    finally:
        go_on.set()
    wait_for(lambda: child.ended, 30, "the end is told")
    assert reader.wait_ended([child], 10)

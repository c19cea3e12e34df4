"""What a child says arrives, whatever it is; and no child can hurt the monitor or another lane by it."""

from __future__ import annotations

import tracemalloc

import pytest

from tfmon.lanes.pipes import MAX_LINE_BYTES
from tfmon.model.requests import Run

pytestmark = pytest.mark.process


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

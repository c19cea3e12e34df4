"""What a child says arrives, whatever it is; and no child can hurt the monitor or another lane by it."""

from __future__ import annotations

import tracemalloc

import pytest
from support.waiting import wait_for

from tfmon.lanes.pipes import MAX_LINE_BYTES, TAIL_BYTES, TAIL_LINES
from tfmon.model.events import LanePrinted
from tfmon.model.lane_events import PhaseEntered
from tfmon.model.requests import Run

pytestmark = pytest.mark.process


def test_ten_thousand_lines_arrive_in_order_and_none_is_lost(start):
    child = start("ten_thousand_lines")
    assert child.end.exit_code == 0
    numbers = [event.at_ns for event in child.events if isinstance(event, PhaseEntered)]
    assert numbers == list(range(10_000))


def test_lines_that_cannot_be_read_are_told_and_those_around_them_arrive(start):
    child = start("bad_lines", lane="cpu #2")
    assert child.end
    assert {event.lane for event in child.events} == {"cpu #2"}
    assert child.phases == ["first", "last"]
    assert len(child.problems) == 4
    assert "JSON" in child.problems[0]
    assert "protocol 99" in child.problems[2]


def test_a_line_that_its_child_did_not_finish_is_told(start):
    child = start("a_cut_off_line")
    assert child.end
    assert child.phases == ["whole"]
    assert child.problems == ["the last line was cut off"]


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


def test_noise_does_not_block_the_child_and_its_end_is_kept_clean(start):
    child = start("noise")
    end = child.end
    assert child.phases == ["said it all"]
    assert end.output_tail[-1] == "the last line"
    assert end.output_tail[-2] == "half of it is \ufffd\ufffd no text"
    assert end.output_tail[-3].startswith("warning 9999: ...."), "nothing of tfmon's own profiles"
    assert not any("\x1b" in line for line in end.output_tail)
    assert len(end.output_tail) <= TAIL_LINES
    assert sum(map(len, end.output_tail)) <= TAIL_BYTES
    printed = [event for event in child.events if isinstance(event, LanePrinted)]
    assert printed[-1].lines[-1] == "the last line" and child.events.index(printed[-1]) < child.events.index(end)
    assert not any("\x1b" in line for event in printed for line in event.lines)


def test_what_a_child_prints_is_told_while_it_lives(start):
    child = start("a_word_and_then_nothing")
    wait_for(lambda: any(isinstance(event, LanePrinted) for event in child.events), what="the child has spoken")
    assert not child.ended


def test_the_environment_is_the_monitors_with_what_the_plan_adds_and_takes_away(start, monkeypatch):
    monkeypatch.setenv("TAKEN", "still there")
    child = start("its_environment", GIVEN="here", TAKEN=None)
    assert child.end
    assert child.phases == ["here", "not set"]

"""Sets of time, held against sets of whole numbers; and a trace as JSON for trace viewers."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_writer import mark, plane, space

from tfmon.profile.trace import TraceError, both, read_space, total, unite, without, write_chrome

DATA = Path(__file__).parent / "data"
spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=8)


def moments(times) -> set[int]:
    return {moment for start, end in times for moment in range(start, end)}


@given(spans, spans)
def test_sets_of_time_behave_as_sets_and_are_sorted(left, right):
    a, b = unite(left), unite(right)
    assert moments(a) == moments(left)
    assert moments(both(a, b)) == moments(left) & moments(right)
    assert moments(without(a, b)) == moments(left) - moments(right)
    assert total(a) == len(moments(left))
    assert all(before[1] < after[0] for before, after in itertools.pairwise(a)), "intervals that touch are one"
    for times in (a, both(a, b), without(a, b)):
        assert all(start < end for start, end in times)
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(times))


def exported(trace, tmp_path) -> list[dict]:
    path = tmp_path / "trace.json"
    count = write_chrome(trace, path)
    events = json.loads(path.read_text(), parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))[
        "traceEvents"
    ]
    assert len(events) == count
    return events


def test_an_event_has_its_place_its_length_and_its_stats(tmp_path):
    trace = space(plane("/host:CPU", {"main": [], "python": [mark("step", 5, 2.5, step_num=3, how="xla")]}))
    *names, event = exported(trace, tmp_path)
    assert [(one["name"], one["pid"], one["tid"], one["args"]["name"]) for one in names] == [
        ("process_name", 1, 0, "/host:CPU"),
        ("thread_name", 1, 1, "main"),
        ("thread_name", 1, 2, "python"),
    ]
    where = {"pid": 1, "tid": 2, "ts": 5, "dur": 2.5}
    assert event == {"ph": "X", "name": "step", **where, "args": {"step_num": 3, "how": "xla"}}


def test_planes_do_not_share_threads_and_empty_ones_are_skipped(tmp_path):
    lines = {"l": [mark("e", 0, 1)]}
    events = exported(space(plane("a", lines), plane("b", {}), plane("c", lines)), tmp_path)
    assert {(one["pid"], one["tid"]) for one in events if one["ph"] == "X"} == {(1, 1), (3, 1)}


def test_what_json_or_a_viewer_cannot_hold_is_written_as_text(tmp_path):
    stats = {"id": -(1 << 60), "ratio": math.inf, "nothing": math.nan, "small": 7}
    (event,) = (
        one for one in exported(space(plane("p", {"l": [mark("e", 0, 1, **stats)]})), tmp_path) if one["ph"] == "X"
    )
    assert event["args"] == {"id": str(-(1 << 60)), "ratio": "inf", "nothing": "nan", "small": 7}


@pytest.mark.tensorflow
@pytest.mark.parametrize("path", sorted(DATA.iterdir()), ids=lambda path: path.name)
def test_a_real_trace_is_exported_whole(path, tmp_path):
    trace = read_space(path)
    complete = [one for one in exported(trace, tmp_path) if one["ph"] == "X"]
    assert len(complete) == sum(len(line.events) for part in trace.planes for line in part.lines)
    assert [one["name"] for one in complete].count("train") == 5


def test_nothing_is_an_empty_list_and_a_file_that_cannot_be_written_is_told(tmp_path):
    assert exported(space(), tmp_path) == []
    with pytest.raises(TraceError, match="cannot be written"):
        write_chrome(space(), tmp_path)

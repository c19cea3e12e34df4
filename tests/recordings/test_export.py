"""A recording for other programs: the numbers are those of the events."""

from __future__ import annotations

import io
import json
from datetime import datetime
from typing import Any

import pytest
from support.events import gpu_sample
from support.recordings import RECORDED

from tfmon.model.lane_events import KnobApplied, Window
from tfmon.model.readings import HostSample, Missing
from tfmon.recordings.reader import Recording
from tfmon.reports.gather import samples_of, write_json


@pytest.fixture
def opened():
    with Recording(RECORDED) as recording:
        yield recording


def windows(opened: Recording, lane: str) -> list[Window]:
    return [event for event in opened.events() if isinstance(event, Window) and event.lane == lane]


def rows_of(opened: Recording) -> list[dict[str, Any]]:
    target = io.StringIO()
    write_json(opened, {}, target)
    return json.loads(target.getvalue())["samples"]


def test_there_is_a_row_for_each_number(opened):
    rows = [row for row in rows_of(opened) if (row["subject"], row["name"]) == ("cpu", "examples_per_s")]
    expected = windows(opened, "cpu")
    assert [row["value"] for row in rows] == [one.examples / one.span_ns * 1e9 for one in expected]
    assert [row["step"] for row in rows] == [one.step for one in expected]
    assert [row["note"] for row in rows] == ["; ".join(one.marks) for one in expected]
    first_ns = opened.times_ns[0]
    assert [row["seconds"] for row in rows] == [round((one.at_ns - first_ns) / 1e9, 6) for one in expected]
    times = [datetime.fromisoformat(row["time"]).timestamp() for row in rows]
    assert times == pytest.approx([opened.header.wall_s(one.at_ns) for one in expected])


def test_what_was_not_measured_is_left_out_and_never_0(opened):
    rows = rows_of(opened)
    names = {row["name"] for row in rows if row["subject"] == "machine"}
    assert {"cpu_pct", "memory_used_bytes"} <= names
    assert "gpu_memory_allocated_bytes" not in {row["name"] for row in rows}


def test_json_is_one_object_with_header_result_and_numbers(opened):
    target = io.StringIO()
    write_json(opened, {"schema": 1}, target)
    body = json.loads(target.getvalue())
    assert body["header"]["scenario"] == "small-dense"
    assert body["result"] == {"schema": 1}
    knobs = [one["value"] for one in body["samples"] if one["name"] == "knob/batch_size"]
    assert knobs == [10, 64]


def test_numbers_of_other_events():
    sample = gpu_sample(
        "G", 1, at_ns=5, busy_pct=50.0, used_bytes=2.0,
        total_bytes=Missing("no"), power_w=3.0, power_limit_w=4.0, temperature_c=5.0, busy_by_pid={1: 2.0},
    )  # fmt: skip
    found = {(one.subject, one.name): one.value for one in samples_of(sample)}
    assert found["gpu:1", "busy_pct"] == 50.0
    assert not {name for _, name in found} & {"total_bytes", "index", "every_s", "at_ns", "busy_by_pid", "unified"}
    applied = KnobApplied(lane="cpu", at_ns=1, request=1, knob="xla", value=True, step=9, gap_ns=1)
    assert [(one.name, one.value, one.step) for one in samples_of(applied)] == [("knob/xla", True, 9)]
    host = HostSample(at_ns=1, cpu_pct=Missing("first"), memory_used_bytes=1.0, memory_total_bytes=2.0)
    assert "cpu_pct" not in {one.name for one in samples_of(host)}

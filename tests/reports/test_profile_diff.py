"""The comparison of two lanes' profiles: text, JSON, a page, and a section of a race's report."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from support.profiles import memory_peak, profile, two_sides
from support.ui import racing_demo

from tfmon.analysis.analysis import analyse
from tfmon.model.lane_events import KnobApplied, Profiled
from tfmon.model.readings import Missing
from tfmon.model.session import Session
from tfmon.reports import Chart, html
from tfmon.reports.profile_diff import WIDTH, describe, to_json, to_text
from tfmon.reports.race import report
from tfmon.reports.race_json import to_json as race_json

from .pages import NO_SCRIPT, visible

PEAKS = (
    memory_peak({"net/large/Relu": 60, "net/small/Relu": 10}, "GPU:0", before=30),
    memory_peak({"input pipeline": 5}),
)
TEXT = """\
A (cpu batch_size=16) takes 3.54 ms a step, B (cpu batch_size=256) 15.8 ms: 12.2 ms more (11.9 ms to
12.6 ms)
these 2 explain 99 % of it (99 to 99): net/dense/MatMul, gradient_tape/net/dense/MatMul/MatMul_1

by operation
  operation                                 A        B  difference          ±  share  runs a step  device
  MatMul net/dense                    1.01 ms  9.09 ms    +8.08 ms   ±0.22 ms   66 %            1  CPU
  MatMul gradient_t…/MatMul/MatMul_1  2.02 ms  6.06 ms    +4.04 ms   ±0.13 ms   33 %            1  CPU
  Cast net/dense                            –  0.40 ms    +0.40 ms  ±0.010 ms    3 %        – | 1  – | CPU
  waiting for input                   0.51 ms  0.20 ms    -0.30 ms  ±0.011 ms   -2 %
  a step                              3.54 ms  15.8 ms    +12.2 ms   ±0.36 ms  100 %
"""


def test_text():
    text = to_text(*two_sides())
    lines = text.splitlines()
    assert lines[: lines.index("by the type of the operation") - 1] == TEXT.splitlines()
    assert max(map(len, lines)) <= WIDTH + 12, "a long name of an operation is not broken"
    assert lines[-4:] == [
        "without the profiler: A 3.40 ms, B 15.1 ms a step, +11.7 ms",
        "examples of a step: A has 16, 0.22 ms each; B has 256, 0.062 ms each",
        "only in B: 1 operation, 0.40 ms a step",
        "3 profiles of A and 3 profiles of B; ± is half the 95 % interval; more --profiles narrow it",
    ]


def test_a_single_profile_of_each_has_no_interval():
    text = to_text(*two_sides(1))
    assert "±0" not in text and "too few for an interval" in text and "explain 99 % of it:" in text


def test_json_has_every_part_in_every_grouping_and_they_add_up():
    plain = to_json(*two_sides())
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert [side["step_ns_without_profiler"] for side in plain["sides"]] == [3.4e6, 15.1e6]
    for rows in plain["parts"].values():
        assert sum(row["difference"]["value_ns"] for row in rows) == pytest.approx(plain["difference"]["value_ns"])
    cast = next(row for row in plain["parts"]["operation"] if row["kind"] == "Cast")
    assert cast["first"] is None and cast["second"]["devices"] == ["CPU"] and cast["second"]["runs"] == 1


def raced_and_profiled() -> Session:
    demo = racing_demo()
    for lane, side in zip(demo.names, two_sides(), strict=True):
        for one in side.profiles:
            demo.session.accept(Profiled(lane=lane, at_ns=demo.clock(), folder="x", profile=one))
    return demo.session


def test_the_report_of_a_race_whose_lanes_were_profiled_has_a_section_with_bars():
    session = raced_and_profiled()
    analysis = analyse(session.snapshot())
    described = report(analysis)
    (section,) = (one for one in described.sections if one.heading == "What explains the difference")
    (chart,) = (block for block in section.shown if isinstance(block, Chart))
    assert len(chart.spec["layer"][0]["data"]["values"]) == 4
    assert len(chart.spec["layer"][1]["data"]["values"]) == 4, "with its interval"
    page = html.write(described, html.keep, NO_SCRIPT)
    assert "these 2 explain 99 % of it" in visible(page)
    assert race_json(analysis)["profiles"]["difference"]["value_ns"] == pytest.approx(12.22e6, rel=0.01)


def test_memory_of_both_sides_stands_beside_each_other():
    first, second = (
        replace(side, profiles=(replace(side.profiles[0], memory=memory),))
        for side, memory in zip(two_sides(1), (PEAKS, Missing("no allocator reports anything")), strict=True)
    )
    text = to_text(first, second)
    start = text.index("memory at its peak, by layer")
    assert text[start:].splitlines()[1:9] == [
        "  A: the peak of 100 MiB on GPU:0: 60 % net/large, 30 % allocated before the profile, 10 % net/small",
        "  A: reached in net/large/Relu",
        "  A: the peak of 5.0 MiB on CPU: 100 % input pipeline",
        "  B: n/a (no allocator reports anything)",
        "",
        "  layer                              A  share  B  share",
        "  net/large                     60 MiB   60 %  –",
        "  allocated before the profile  30 MiB   30 %  –",
    ]
    sides = to_json(first, second)["sides"]
    assert [one["allocated_bytes"] >> 20 for one in sides[0]["memory"]] == [100, 5]
    assert sides[1]["memory"] is None and sides[1]["memory_missing"] == "no allocator reports anything"


def test_the_report_of_a_race_has_the_memory_of_a_single_lane_that_was_profiled():
    demo = racing_demo()
    for peaks in (PEAKS[1:], PEAKS):
        one = replace(two_sides(1)[0].profiles[0], memory=peaks)
        demo.session.accept(Profiled(lane=demo.names[0], at_ns=demo.clock(), folder="x", profile=one))
    described = report(analyse(demo.session.snapshot()))
    headings = [section.heading for section in described.sections if section.shown]
    assert "Memory at its peak, by layer" in headings and "What explains the difference" not in headings
    page = visible(html.write(described, html.keep, NO_SCRIPT))
    assert "60 % net/large, 30 % allocated before the profile" in page


def test_profiles_of_an_older_version_have_no_section_of_memory():
    headings = [
        section.heading for section in report(analyse(raced_and_profiled().snapshot())).sections if section.shown
    ]
    assert "What explains the difference" in headings and "Memory at its peak, by layer" not in headings


def test_profiles_under_other_settings_are_not_compared():
    session = raced_and_profiled()
    lane = session.snapshot().lanes[0].spec.name
    session.accept(KnobApplied(lane=lane, at_ns=1, request=1, knob="batch_size", value=32, step=1, gap_ns=0))
    assert race_json(analyse(session.snapshot()))["profiles"] is None


def test_a_page_of_its_own():
    page = html.write(describe(*two_sides(), page=True), html.keep, NO_SCRIPT)
    assert "by layer, with its gradient" in visible(page)


def test_the_chart_can_be_drawn():
    convert = pytest.importorskip("vl_convert")
    chart = next(
        block for section in describe(*two_sides(), page=True).sections for block in section.shown
        if isinstance(block, Chart)
    )  # fmt: skip
    svg = convert.vegalite_to_svg({**chart.spec, "width": 500})
    assert "MatMul net/dense" in svg and svg.count("<path") > 8


def test_a_profile_without_parts_is_not_compared():
    demo = racing_demo()
    for lane in demo.names:
        old = profile({("a", "A"): 1.0})
        object.__setattr__(old, "parts", ())
        demo.session.accept(Profiled(lane=lane, at_ns=demo.clock(), folder="x", profile=old))
    assert race_json(analyse(demo.session.snapshot()))["profiles"] is None

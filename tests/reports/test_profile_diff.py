"""The comparison of two lanes' profiles: text, JSON, a page, and a section of a race's report."""

import json
from dataclasses import replace

import pytest
from support.profiles import memory_peak, two_sides
from support.results import to_json as race_json
from support.ui import racing_demo

from tfmon.analysis.analysis import analyse
from tfmon.analysis.profile_json import to_json
from tfmon.analysis.summarise import summarise
from tfmon.model.lane_events import Profiled
from tfmon.reports import html
from tfmon.reports.profile_report import diff_to_text as to_text
from tfmon.reports.race_report import report
from tfmon.reports.secrets import keep

from .pages import NO_SCRIPT, visible

PEAKS = (
    memory_peak({"net/large/Relu": 60, "net/small/Relu": 10}, "GPU:0", before=30),
    memory_peak({"input pipeline": 5}),
)


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


def test_the_report_of_a_race_has_the_memory_of_a_single_lane_that_was_profiled():
    demo = racing_demo()
    for peaks in (PEAKS[1:], PEAKS):
        one = replace(two_sides(1)[0].profiles[0], memory=peaks)
        demo.session.accept(Profiled(lane=demo.names[0], at_ns=demo.clock(), folder="x", profile=one))
    described = report(analyse(demo.session.snapshot()), summarise(analyse(demo.session.snapshot())))
    headings = [section.heading for section in described.sections if section.shown]
    assert "Memory at its peak, by layer" in headings and "What explains the difference" not in headings
    page = visible(html.write(described, keep, NO_SCRIPT))
    assert "60 % net/large, 30 % allocated before the profile" in page


def test_profiles_under_other_settings_are_not_compared():
    demo = racing_demo()
    for lane, side in zip(demo.names, two_sides(), strict=True):
        for one in side.profiles:
            demo.session.accept(Profiled(lane=lane, at_ns=demo.clock(), folder="x", profile=one))
    assert race_json(analyse(demo.session.snapshot()))["profiles"] is not None
    demo.apply(demo.names[0], "batch_size", 32)
    assert race_json(analyse(demo.session.snapshot()))["profiles"] is None

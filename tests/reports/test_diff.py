"""The comparison of two races, in text and JSON."""

from __future__ import annotations

from types import SimpleNamespace

from support.ui import Demo

from tfmon.recordings.compare import Comparison, Difference, LanePair
from tfmon.recordings.figures import Change, RaceFigures
from tfmon.reports.diff import to_json, to_text


def side(name: str, speed: float) -> RaceFigures:
    demo = Demo(mode="turns")
    demo.go()
    demo.race(20, (speed, 2_420), wobble=0)
    header = SimpleNamespace(
        scenario="small-dense", source="", started="2026-01-02T03:04:05+00:00", tfmon="", environment={}
    )
    return RaceFigures.of(name, header, demo.session.snapshot())


def test_each_lane_has_its_speeds_in_the_order_of_the_races():
    first, second = side("one", 5_000), side("two", 7_500)
    change, unsure = Change(1.5, 1.4, 1.6), Change(1.0, 0.9, 1.1)
    lanes = tuple(
        LanePair(one, other, how)
        for one, other, how in zip(first.lanes, second.lanes, (change, unsure), strict=True)
    )
    differences = (Difference("knobs", "cpu: xla", "off", "on"), Difference("knobs", "cpu: cache", "off", "on"))
    comparison = Comparison(first, second, lanes, ("cpu #3: only in the first",), change, differences, ("a note",))
    told = to_json(comparison)
    speeds = told["lanes"][0]["examples_per_s"]
    assert speeds == [lane.examples_per_s for lane in (lanes[0].first, lanes[0].second)]
    assert speeds[0] < speeds[1]
    assert (told["verdict"]["ratio"], told["verdict"]["ratio_ci95"]) == (1.5, [1.4, 1.6])
    lines = to_text(comparison).splitlines()
    assert lines[:2] == [
        "first   one  small-dense, 2026-01-02 03:04",
        "second  two  small-dense, 2026-01-02 03:04",
    ]
    cpu = next(line for line in lines if line.startswith("C cpu "))
    assert cpu.index("5 0") < cpu.index("7 5") < cpu.index("1.50×")
    assert next(line for line in lines if line.startswith("G gpu:0 ")).endswith(": too close to call")
    assert "cpu #3: only in the first" in lines and "a note" in lines
    assert [line.split()[0] for line in lines[-2:]] == ["knobs", "cpu:"], "a group is named once"

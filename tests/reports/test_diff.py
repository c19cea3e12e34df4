"""The comparison of two races, and the outcomes of claims, in text and JSON."""

from __future__ import annotations

from types import SimpleNamespace

from support.ui import Demo

from tfmon.model.race import Claim, ClaimResult
from tfmon.model.readings import Estimate
from tfmon.recordings.compare import Comparison, Difference, LanePair
from tfmon.recordings.figures import Change, RaceFigures
from tfmon.reports.checks import claims_to_json, claims_to_text, prediction
from tfmon.reports.diff import to_json, to_text


def side(name: str, speed: float) -> RaceFigures:
    demo = Demo(mode="turns").go().race(20, (speed, 2_420), wobble=0)
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


# ---------------------------------------------------------------- claims


def claim(**fields) -> Claim:
    return Claim("an-id", "an article", "says so", "cpu,graph=on", "cpu,graph=off", **fields)


RESULTS = (
    ClaimResult("net", claim(), "supported", Estimate(15.6, 15.4, 15.8, 12)),
    ClaimResult("net", claim(), "not testable here", reason="it needs a Mac"),
    ClaimResult(
        "other", Claim("flat", "an article", "it is flat", corrected="round"), "corrected", reason="round"
    ),
)


def test_predictions_are_written_as_comparisons():
    assert prediction(claim(at_least=3)) == "cpu,graph=on > cpu,graph=off by 3.0×"
    assert prediction(claim(at_most=1.1)) == "cpu,graph=on ≈ cpu,graph=off (within 1.10×)"
    assert prediction(Claim("an-id", "an article", "says so", corrected="no")) == ""


def test_the_text_has_the_claims_by_scenario_and_counts_the_outcomes():
    assert claims_to_text(RESULTS, "interrupted by SIGINT").splitlines() == [
        "net",
        "  supported          an-id  says so",
        "                     cpu,graph=on > cpu,graph=off: measured 15.6× (15.4 to 15.8, 12 pairs)",
        "  not testable here  an-id  says so",
        "                     it needs a Mac",
        "",
        "other",
        "  corrected          flat   it is flat",
        "                     round",
        "",
        "3 claims: 1 corrected, 1 not testable here, 1 supported",
        "interrupted by SIGINT",
    ]


def test_the_json_says_the_same():
    told = claims_to_json(RESULTS)
    assert (told["schema"], told["interrupted"]) == (8, None)
    first, second, third = told["claims"]
    assert (first["ratio"], first["ratio_ci95"], first["pairs"], first["reason"]) == (15.6, [15.4, 15.8], 12, None)
    assert (second["ratio"], second["ratio_ci95"], second["reason"]) == (None, None, "it needs a Mac")
    assert (third["first"], third["at_least"], third["outcome"]) == (None, None, "corrected")

"""What is said of lanes that differ only in the number of their devices."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.many_gpus import EIGHT, ManyGpus, eight_gpus

from tfmon.analysis.advice import advice_for
from tfmon.analysis.analysis import analyse
from tfmon.analysis.verdict import FASTER, SAME
from tfmon.model.knobs import COMMON
from tfmon.model.spec import LaneSpec
from tfmon.reports.race_json import to_json

from .test_verdict import find_verdict, lane, noisy, snapshot


def test_more_gpus_say_how_near_they_come_to_linear_and_with_which_interval():
    verdict = find_verdict(snapshot(lane("gpu:0", noisy(100)), lane("gpu:0+1", noisy(171, seed=2))))
    (one,) = verdict.scaling
    assert (one.lane, one.devices, one.over, verdict.kind) == ("gpu:0+1", 2, 1, FASTER)
    assert one.ratio == verdict.interval
    assert one.of_linear == pytest.approx(one.ratio.value / 2)
    assert verdict.text.startswith(
        f"2 GPUs are {one.ratio.value:.2f}× one ({50 * one.ratio.value:.0f} % of linear; 95 % CI "
    )
    assert verdict.text.endswith("pairs)") and verdict.short.endswith(")")


def test_each_number_of_devices_is_compared_with_the_fewest():
    speeds = {"cpu": 100, "2xcpu": 190, "4xcpu": 300}
    verdict = find_verdict(snapshot(*(lane(name, noisy(speed, seed=speed)) for name, speed in speeds.items())))
    assert [(one.devices, one.over, round(one.ratio.value)) for one in verdict.scaling] == [
        (2, 1, 2),
        (4, 1, 3),
    ]
    assert "4 logical CPUs are" in verdict.text and " two" not in verdict.text
    halves = find_verdict(snapshot(lane("gpu:0+1", noisy(100)), lane("gpu:0+1+2+3", noisy(150, seed=3))))
    assert halves.scaling[0].of_linear == pytest.approx(0.75, abs=0.03)
    assert "4 GPUs are 1." in halves.text and "× two (7" in halves.text


def test_where_more_devices_are_slower_or_the_same_the_verdict_says_that_first():
    slower = find_verdict(snapshot(lane("cpu", noisy(150)), lane("2xcpu", noisy(100, seed=2))))
    assert slower.text.startswith("cpu is 1.5") and "; 2 logical CPUs are 0.6" in slower.text
    same = find_verdict(snapshot(lane("cpu", [100.0] * 300), lane("2xcpu", [100.2] * 300)))
    assert same.kind == SAME and "the same within" in same.text and "(50 % of linear" in same.text


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (LaneSpec("gpu:0"), LaneSpec("gpu:1")),
        (LaneSpec("cpu"), LaneSpec("gpu:0+1")),
        (LaneSpec("gpu:0"), LaneSpec("gpu:0+1", host="gpu2")),
    ],
)
def test_lanes_that_differ_in_more_or_in_no_number_do_not_scale(first, second):
    lanes = [
        replace(lane("x", noisy(100 + 80 * place)), spec=replace(spec, name=str(place)))
        for place, spec in enumerate((first, second))
    ]
    assert find_verdict(snapshot(*lanes)).scaling == ()


def test_lanes_with_other_settings_do_not_scale():
    demo = ManyGpus((LaneSpec("gpu:0", {"batch_size": 64}), LaneSpec(EIGHT.device, {"batch_size": 512})))
    demo.go()
    demo.race(30, (2_420, 16_000))
    found = find_verdict(demo.session.snapshot())
    assert found.ratio and found.scaling == ()


def test_the_json_has_the_scaling_and_each_gpu_with_what_the_lane_used_of_it():
    demo = eight_gpus()
    result = to_json(analyse(demo.session.snapshot()))
    (one,) = result["verdict"]["scaling"]
    assert (one["id"], one["devices"], one["over_devices"]) == ("B", 8, 1)
    assert one["of_linear"] == pytest.approx(6.9 / 8, rel=0.05)
    gpus = result["lanes"][1]["gpus"]
    assert [gpu["index"] for gpu in gpus] == list(range(8))
    assert gpus[6]["lane_used_bytes"] == 32 * 2**30
    assert result["lanes"][1]["gpu_memory_used_bytes"] == sum(gpu["lane_used_bytes"] for gpu in gpus)
    assert result["lanes"][0]["gpus"][0]["lane_used_bytes"] == 2 * 2**30


def test_a_lane_on_several_devices_is_advised_nothing_that_it_refuses():
    demo = ManyGpus((LaneSpec("gpu:0"), LaneSpec("gpu:0+1")))
    demo.go()
    demo.race(5)
    snapshot = demo.session.snapshot()
    knobs = (*COMMON, *snapshot.race.knobs)
    one, two = ([(one.knob, one.value) for one in advice_for("compute", lane, knobs)] for lane in snapshot.lanes)
    assert ("xla", True) in one and ("mixed_precision", "float16") in one
    assert {knob for knob, _ in two} == {"mixed_precision", "batch_size"} and (
        "mixed_precision",
        "float16",
    ) not in two

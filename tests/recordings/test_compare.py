"""Two races side by side: ratios with intervals, and differences."""

import math
from dataclasses import replace

import pytest
from support.ui import CPU_MACHINE, Demo

from tfmon.analysis.analysis import analyse
from tfmon.analysis.compare import compare
from tfmon.analysis.result import RaceResult
from tfmon.analysis.statistics import between_processes
from tfmon.analysis.summarise import summarise
from tfmon.model.lane_events import LibrariesLoaded
from tfmon.model.spec import LaneSpec
from tfmon.reports.diff import to_text


def raced(speeds=(7_663, 2_420), **more) -> Demo:
    return Demo(mode="turns", **more).go().race(20, speeds)


def side(header, demo: Demo, name: str = "one", **changes) -> RaceResult:
    return summarise(analyse(demo.session.snapshot()), replace(header, **changes), name)


def test_the_interval_of_a_faster_lane_includes_the_truth(header):
    found = compare(side(header, raced()), side(header, raced((7_663 * 1.5, 2_420)), "two"))
    cpu, gpu = (pair.change for pair in found.lanes)
    (low, high), (gpu_low, gpu_high) = cpu.ratio_ci95, gpu.ratio_ci95
    assert 1 < low < 1.5 < high and gpu_low <= 1 <= gpu_high
    assert math.log(high / cpu.ratio) >= between_processes((), ()).reach(), (
        "two processes differ by that, however long they race"
    )
    assert found.verdict.ratio_ci95[0] < 1.5 < found.verdict.ratio_ci95[1]
    assert "1.50×" in to_text(found)
    assert compare(side(header, raced()), side(header, raced((2_000, 9_000)))).verdict is None, "another winner"


def test_lanes_are_paired_by_id_however_their_names_have_changed_then_by_device(header):
    batches = [LaneSpec("cpu", {"batch_size": 10}), LaneSpec("cpu", {"batch_size": 20})]
    one, other = raced(specs=batches), raced(specs=batches)
    for name, size in zip(other.names, (20, 10), strict=True):
        other.apply(name, "batch_size", size)
    found = compare(side(header, one), side(header, other))
    assert [(pair.first.name, pair.second.name) for pair in found.lanes] == [
        ("cpu batch_size=10", "cpu batch_size=20"), ("cpu batch_size=20", "cpu batch_size=10"),
    ]  # fmt: skip
    assert ("A: batch_size", "10", "20") in [
        (difference.what, difference.first, difference.second) for difference in found.differences
    ]
    found = compare(side(header, raced()), side(header, raced(specs=batches)))
    assert [(pair.first.id, pair.second.id) for pair in found.lanes] == [("C", "A")]
    assert found.unpaired == ("G gpu:0: only in the first", "B cpu batch_size=20: only in the second")


def test_races_of_two_scenarios_are_said_to_be_no_comparison(header):
    found = compare(side(header, raced()), replace(side(header, raced()), scenario="conv"))
    assert found.notes == (
        "these races are of different scenarios, small-dense and conv: no ratio between them says what is faster",
    )
    assert found.notes[0] in to_text(found).splitlines()
    changed = compare(side(header, raced(), source="one"), side(header, raced(), source="other"))
    assert changed.notes[0].startswith("the file of small-dense was changed")


def test_what_was_different_is_named(header):
    other = raced(machine=CPU_MACHINE)
    other.apply("cpu", "batch_size", 64)
    told = LibrariesLoaded(lane="cpu", at_ns=1, tensorflow="2.18.1", keras="3", numpy="2", device_name="")
    other.session.accept(told)
    changed = {"source": "other", "tfmon": "9.9", "environment": {"XLA_FLAGS": "--x"}}
    found = compare(side(header, raced(), environment={}), side(header, other, **changed))
    named = {
        (difference.about, difference.what): (difference.first, difference.second)
        for difference in found.differences
    }
    assert named["scenario", "source"] == ("none", "other")
    assert named["knobs", "C: batch_size"] == ("10", "64")
    assert named["versions", "tfmon"] == (header.tfmon, "9.9")
    assert named["versions", "C: tensorflow"][1] == "2.18.1"
    assert named["machine", "gpus"] == ("NVIDIA H200", "none")
    assert named["environment", "XLA_FLAGS"] == ("none", "--x")
    text = to_text(found)
    assert all(what in text for _, what in named)


@pytest.mark.parametrize(("why", "named"), [("", False), ("the driver is too old", True)])
def test_a_gpu_that_was_not_requested_makes_no_other_machine(header, why, named):
    without = replace(CPU_MACHINE, no_gpu="no NVIDIA driver")
    sides = [side(header, raced(machine=one)) for one in (without, replace(CPU_MACHINE, no_gpu=why))]
    assert ("no_gpu" in [difference.what for difference in compare(*sides).differences]) is named


def test_a_lane_that_failed_is_noted_and_has_no_ratio(header):
    failed = Demo()
    failed.fail("gpu:0")
    found = compare(side(header, raced()), side(header, failed, "two"))
    assert [pair.change for pair in found.lanes] == [None, None]
    assert "two: G gpu:0: no module named 'keras_hub'" in found.notes
    assert "n/a" in to_text(found)

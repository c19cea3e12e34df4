"""What lanes are called while their settings change: every difference is named, and the id stays."""

from __future__ import annotations

import pytest
from support.ui import Demo

from tfmon.model.naming import ordered_settings
from tfmon.model.spec import LaneSpec

BATCHES = (LaneSpec("cpu", {"batch_size": 10}), LaneSpec("cpu", {"batch_size": 256}))


def racing(*specs: LaneSpec) -> Demo:
    demo = Demo(specs, mode="turns")
    demo.go()
    return demo


def titles(demo: Demo) -> list[str]:
    return [lane.title for lane in demo.session.snapshot().lanes]


def ids(demo: Demo) -> str:
    return "".join(lane.spec.id for lane in demo.session.snapshot().lanes)


def test_every_knob_that_is_changed_on_one_lane_enters_both_names_behind_the_contrast():
    demo = racing(*BATCHES)
    assert titles(demo) == ["cpu batch_size=10", "cpu batch_size=256"]
    names = demo.names
    demo.apply(names[0], "graph", False)
    assert titles(demo) == ["cpu batch_size=10", "cpu batch_size=256"], "unknown of the other lane: no difference"
    demo.apply(names[1], "graph", True)
    demo.apply(names[0], "prefetch", 1)
    assert titles(demo) == [
        "cpu batch_size=10 prefetch=1 graph=off",
        "cpu batch_size=256 prefetch=off graph=on",
    ]
    assert demo.session.snapshot().differing == ("batch_size", "prefetch", "graph")
    assert (names, ids(demo)) == (demo.names, "AB")
    first = demo.session.snapshot().lanes[0]
    assert first.short_title == "batch 10, prefetch 1, graph off"
    demo.apply(names[0], "width", 5)
    first = demo.session.snapshot().lanes[0]
    assert [(knob, differs) for knob, _, differs in ordered_settings(first)] == [
        ("batch_size", True), ("prefetch", True), ("graph", True), ("width", False),
    ]  # fmt: skip


def test_a_difference_that_goes_leaves_the_name_and_equal_lanes_have_their_ids():
    demo = racing(*BATCHES)
    demo.apply(demo.names[0], "batch_size", 256)
    assert titles(demo) == ["cpu #A", "cpu #B"]
    demo.apply(demo.names[0], "batch_size", 64)
    assert titles(demo) == ["cpu batch_size=64", "cpu batch_size=256"]


def test_a_restart_with_other_settings_renames_both_lanes_at_once():
    demo = racing(LaneSpec("cpu"), LaneSpec("gpu:0"))
    assert titles(demo) == ["cpu", "gpu:0"]
    demo.apply("gpu:0", "batch_size", 512)
    assert titles(demo) == ["cpu batch_size=10", "gpu:0 batch_size=512"]
    assert (ids(demo), demo.session.snapshot().lanes[1].short_title) == ("CG", "gpu:0, batch 512")


def test_before_the_lanes_have_said_their_settings_the_specs_name_them():
    demo = Demo((LaneSpec("cpu", {"prefetch": "off"}), LaneSpec("cpu")), mode="turns")
    demo.session.begin(demo.session.snapshot().race, demo.specs)
    assert titles(demo) == ["cpu prefetch=off", "cpu"]
    assert demo.session.snapshot().differing == ("prefetch",)


@pytest.mark.parametrize(("one", "other", "same"), [(1, True, False), (True, True, True), (0, 0.0, True)])
def test_on_and_1_are_two_values(one, other, same):
    demo = racing(LaneSpec("cpu"), LaneSpec("gpu:0"))
    for name, value in zip(demo.names, (one, other), strict=True):
        demo.apply(name, "width", value)
    assert (titles(demo) == ["cpu", "gpu:0"]) is same

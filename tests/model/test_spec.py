"""Lane specs: how they are read, and what lanes are called, also while their settings change."""

from __future__ import annotations

import pytest
from support.ui import Demo

from tfmon.model.knobs import COMMON, KnobError
from tfmon.model.lanes_together import ordered_settings
from tfmon.model.spec import ANY_GPU, LaneSpec, SpecError, name_lanes, parse_lane, short_title


def lanes(*texts: str):
    return name_lanes([parse_lane(text, COMMON) for text in texts])


@pytest.mark.parametrize(
    ("text", "device", "kind", "index"),
    [
        ("cpu", "cpu", "cpu", 0),
        ("CPU", "cpu", "cpu", 0),
        ("gpu", ANY_GPU, "gpu", 0),
        (" gpu:007 ", "gpu:7", "gpu", 7),
        ("gpu2/GPU:1", "gpu:1", "gpu", 1),
    ],
)
def test_a_device_is_read(text, device, kind, index):
    spec = parse_lane(text, COMMON)
    assert (spec.device, spec.kind, spec.index, spec.settings) == (device, kind, index, {})


@pytest.mark.parametrize(
    ("text", "device", "kind", "indexes", "devices"),
    [
        ("gpu:0+1", "gpu:0+1", "gpu", (0, 1), 2),
        ("gpu2/GPU:3+01+2", "gpu:3+1+2", "gpu", (3, 1, 2), 3),
        ("gpu:ALL", "gpu:all", "gpu", (), 1),
        ("gpu", "gpu", "gpu", (), 1),
        ("mig-1C0F", "MIG-1c0f", "gpu", (), 1),
        ("4xgpu", "4xgpu", "gpu", (), 4),
        ("02xCPU", "2xcpu", "cpu", (), 2),
        ("1xcpu", "cpu", "cpu", (), 1),
    ],
)
def test_several_devices_are_read(text, device, kind, indexes, devices):
    spec = parse_lane(text, COMMON)
    assert (spec.device, spec.kind, spec.indexes, spec.devices) == (device, kind, indexes, devices)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0xcpu", "0xcpu is not possible; a lane trains on 1 to 64 devices"),
        ("65xgpu", "1 to 64 devices"),
        ("gpu:0+0", "names gpu:0 twice"),
        ("gpu:1+2+1", "names gpu:1 twice"),
        *(
            (text, "there is no device")
            for text in ("gpu:0+", "gpu:+", "xcpu", "-1xcpu", "2xcpu:1", "2xgpu:0+1", "cpu:all")
        ),
    ],
)
def test_devices_that_cannot_be_are_refused_in_a_line(text, said):
    with pytest.raises(SpecError, match=said):
        parse_lane(text, COMMON)


def test_lanes_on_one_and_on_two_devices_have_names_of_their_own():
    specs = lanes("cpu", "2xcpu", "gpu2/2xcpu,batch_size=8")
    assert [spec.name for spec in specs] == ["cpu", "2xcpu", "gpu2/2xcpu"]
    assert short_title(specs[1], {"batch_size": 8}, ("batch_size",)) == "2xcpu, batch 8"


def test_settings_follow_the_device():
    settings = parse_lane("gpu:0, batch_size=256 ,prefetch=off,", COMMON).settings
    assert settings == {"batch_size": 256, "prefetch": "off"}
    with pytest.raises(KnobError, match="no knob 'batch'"):
        parse_lane("cpu,batch=1", COMMON)


@pytest.mark.parametrize(
    "text", ["", "tpu", "cpu:0", "cpu:", "gpu:", "gpu:-1", "gpu:²", "gpu:0:1", "gpu0", "MIG-", "MIG-xyz"]
)
def test_an_unknown_device_is_refused_with_the_possible_ones(text):
    with pytest.raises(SpecError, match="a lane runs on cpu, gpu or gpu:N") as caught:
        parse_lane(text, COMMON)
    assert str(caught.value).endswith(
        "; on several at once as gpu:0+1, gpu:all, 4xgpu or 2xcpu; on an instance as MIG-UUID"
    )


@pytest.mark.parametrize(
    ("text", "host", "place"),
    [
        ("gpu", "", "gpu"),
        ("gpu2/gpu:0", "gpu2", "gpu2/gpu:0"),
        ("me@gpu3/cpu,batch_size=64", "me@gpu3", "me@gpu3/cpu"),
        ("ssh://me@gpu3:2222/gpu:1", "ssh://me@gpu3:2222", "ssh://me@gpu3:2222/gpu:1"),
    ],
)
def test_what_comes_before_the_last_slash_is_the_host(text, host, place):
    spec = parse_lane(text, COMMON)
    assert (spec.host, spec.place) == (host, place)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("/gpu", "no host before the /"),
        ("-oProxyCommand=touch x/gpu", "does not begin with -"),
        ("gpu 2/gpu", "no spaces"),
        ("gpu\x1b2/gpu", "no control characters"),
        ("gpu2/tpu", "a lane runs on cpu, gpu or gpu:N"),
    ],
)
def test_an_impossible_host_is_refused(text, said):
    with pytest.raises(SpecError, match=said):
        parse_lane(text, COMMON)


@pytest.mark.parametrize(
    ("texts", "names", "ids"),
    [
        (["cpu", "gpu2/gpu:0"], ["cpu", "gpu2/gpu:0"], "CG"),
        (["gpu2/gpu:0", "gpu3/gpu:0"], ["gpu2/gpu:0", "gpu3/gpu:0"], "AB"),
        (
            ["gpu2/gpu:0,batch_size=8", "gpu3/gpu:0,batch_size=16", "gpu2/gpu:0"],
            ["gpu2/gpu:0 batch_size=8", "gpu3/gpu:0", "gpu2/gpu:0"],
            "ABC",
        ),
        (["cpu,prefetch=off", "gpu:0"], ["cpu", "gpu:0"], "CG"),
        (["gpu:3"], ["gpu:3"], "A"),
        (
            ["cpu,prefetch=off,batch_size=8", "cpu,prefetch=auto,batch_size=8"],
            ["cpu prefetch=off", "cpu prefetch=auto"],
            "AB",
        ),
        (
            ["cpu,batch_size=8", "gpu:0,batch_size=8", "gpu:0,batch_size=16"],
            ["cpu", "gpu:0 batch_size=8", "gpu:0 batch_size=16"],
            "ABC",
        ),
        (["gpu:0", "cpu", "gpu:0"], ["gpu:0 #1", "cpu", "gpu:0 #2"], "ABC"),
        (["cpu,prefetch=1", "cpu,prefetch=1", "cpu"], ["cpu prefetch=1 #1", "cpu prefetch=1 #2", "cpu"], "ABC"),
    ],
)
def test_lanes_are_named_by_device_and_what_distinguishes_them_on_it(texts, names, ids):
    found = lanes(*texts)
    assert [lane.name for lane in found] == names
    assert "".join(lane.id for lane in found) == ids


# ---------------------------------------------------------------- names that follow the settings


BATCHES = (LaneSpec("cpu", {"batch_size": 10}), LaneSpec("cpu", {"batch_size": 256}))


def racing(*specs: LaneSpec) -> Demo:
    demo = Demo(specs, mode="turns").go()
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
    assert titles(demo) == ["cpu batch_size=10 prefetch=1 graph=off", "cpu batch_size=256 prefetch=off graph=on"]
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

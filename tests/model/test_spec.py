"""Lane specs: how they are read, and what lanes are called."""

from __future__ import annotations

import pytest

from tfmon.model.knobs import COMMON, KnobError
from tfmon.model.spec import SpecError, name_lanes, parse_lane, title


def lanes(*texts: str):
    return name_lanes([parse_lane(text, COMMON) for text in texts])


def names(*texts: str) -> list[str]:
    return [lane.name for lane in lanes(*texts)]


def ids(*texts: str) -> str:
    return "".join(lane.id for lane in lanes(*texts))


@pytest.mark.parametrize(
    ("text", "device", "kind", "index"),
    [
        ("cpu", "cpu", "cpu", 0),
        ("CPU", "cpu", "cpu", 0),
        ("gpu", "gpu:0", "gpu", 0),
        ("gpu:1", "gpu:1", "gpu", 1),
        (" gpu:007 ", "gpu:7", "gpu", 7),
    ],
)
def test_a_device_is_read(text, device, kind, index):
    spec = parse_lane(text, COMMON)
    assert (spec.device, spec.kind, spec.index, spec.settings) == (device, kind, index, {})


def test_settings_follow_the_device():
    assert parse_lane("gpu:0, batch_size=256 ,prefetch=off,", COMMON).settings == {
        "batch_size": 256,
        "prefetch": "off",
    }


@pytest.mark.parametrize(
    "text", ["", "tpu", "cpu:0", "cpu:", "gpu:", "gpu:-1", "gpu:x", "gpu:²", "gpu:0:1", "gpu0"]
)
def test_an_unknown_device_is_refused_with_the_ones_there_are(text):
    with pytest.raises(SpecError, match="a lane runs on cpu, gpu or gpu:N"):
        parse_lane(text, COMMON)


def test_a_bad_knob_is_refused():
    with pytest.raises(KnobError, match="no knob 'batch'"):
        parse_lane("cpu,batch=1", COMMON)


def test_a_lane_alone_on_its_device_is_called_like_it_whatever_its_settings():
    assert names("cpu,prefetch=off", "gpu") == ["cpu", "gpu:0"]


def test_lanes_that_share_a_device_say_what_tells_them_apart():
    assert names("cpu,prefetch=off,batch_size=8", "cpu,prefetch=auto,batch_size=8") == [
        "cpu prefetch=off",
        "cpu prefetch=auto",
    ]
    assert [lane.apart for lane in lanes("cpu,prefetch=off", "cpu")] == [("prefetch",), ()]


def test_what_another_device_does_tells_nothing_apart():
    assert names("cpu,batch_size=8", "gpu:0,batch_size=8", "gpu:0,batch_size=16") == [
        "cpu",
        "gpu:0 batch_size=8",
        "gpu:0 batch_size=16",
    ]


def test_lanes_with_the_same_spec_are_numbered():
    assert names("cpu", "cpu") == ["cpu #1", "cpu #2"]
    assert names("gpu", "cpu", "gpu:0") == ["gpu:0 #1", "cpu", "gpu:0 #2"]
    assert names("cpu,prefetch=1", "cpu,prefetch=1", "cpu") == ["cpu prefetch=1 #1", "cpu prefetch=1 #2", "cpu"]


def test_names_are_unique():
    race = ["cpu", "cpu", "cpu,prefetch=off", "cpu,batch_size=8", "cpu,batch_size=8,prefetch=off", "gpu", "gpu:0"]
    assert len(set(names(*race))) == len(race)


def test_one_cpu_and_one_gpu_lane_are_c_and_g():
    assert ids("cpu", "gpu:3") == "CG"
    assert ids("gpu", "cpu") == "GC"
    assert ids("cpu") == "C"


def test_other_races_go_from_a():
    assert ids("cpu", "cpu") == "AB"
    assert ids("cpu", "gpu:0", "gpu:1") == "ABC"


def test_a_title_shows_the_settings_in_force_and_the_name_stays():
    first, second = lanes("cpu,prefetch=off", "cpu,prefetch=auto")
    assert title(first) == first.name == "cpu prefetch=off"
    assert title(first, {"prefetch": 2, "batch_size": 8}) == "cpu prefetch=2"
    assert title(second, {"batch_size": 8}) == "cpu prefetch=auto"

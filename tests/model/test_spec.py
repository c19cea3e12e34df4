"""Lane specs: how they are read, and what lanes are called, also while their settings change."""

import pytest

from tfmon.model.knobs import COMMON
from tfmon.model.spec import ANY_GPU, SpecError, name_lanes, parse_lane


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

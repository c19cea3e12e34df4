"""Lane specs: how they are read, and what lanes are called, also while their settings change."""

import pytest

from tfmon.model.knobs import COMMON
from tfmon.model.spec import ANY_GPU, SpecError, name_lanes, parse_lane


@pytest.mark.parametrize(
    ("text", "device", "indexes", "devices"),
    [
        ("gpu", ANY_GPU, (), 1),
        (" gpu:007 ", "gpu:7", (7,), 1),
        ("gpu2/GPU:3+01+2", "gpu:3+1+2", (3, 1, 2), 3),
        ("gpu:ALL", "gpu:all", (), 1),
        ("02xCPU", "2xcpu", (), 2),
        ("1xcpu", "cpu", (), 1),
    ],
)
def test_devices_are_read(text, device, indexes, devices):
    spec = parse_lane(text, COMMON)
    assert (spec.device, spec.indexes, spec.devices, spec.settings) == (device, indexes, devices, {})
    assert spec.kind == ("cpu" if "cpu" in device else "gpu")
    assert spec.index == next(iter(indexes), 0)


POSSIBLE = (
    "a lane runs on cpu, gpu or gpu:N.*; on several at once as gpu:0\\+1, gpu:all, 4xgpu or 2xcpu; "
    "on an instance as MIG-UUID$"
)
UNKNOWN = ["", "tpu", "cpu:0", "cpu:", "gpu:", "gpu:-1", "gpu:²", "gpu:0:1", "gpu0", "MIG-", "MIG-xyz", "gpu2/tpu"]
IMPOSSIBLE = ["gpu:0+", "gpu:+", "xcpu", "-1xcpu", "2xcpu:1", "2xgpu:0+1", "cpu:all"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((text, POSSIBLE) for text in UNKNOWN),
        *((text, "there is no device") for text in IMPOSSIBLE),
        ("0xcpu", "0xcpu is not possible; a lane trains on 1 to 64 devices"),
        ("gpu:1+2+1", "names gpu:1 twice"),
        ("/gpu", "no host before the /"),
        ("-oProxyCommand=touch x/gpu", "does not begin with -"),
        ("gpu 2/gpu", "no spaces"),
        ("gpu\x1b2/gpu", "no control characters"),
    ],
)
def test_what_is_no_lane_is_refused_with_what_is_possible(text, said):
    with pytest.raises(SpecError, match=said):
        parse_lane(text, COMMON)


@pytest.mark.parametrize(
    ("texts", "names", "ids"),
    [
        (["cpu", "gpu2/gpu:0"], ["cpu", "gpu2/gpu:0"], "CG"),
        (
            ["gpu2/gpu:0,batch_size=8", "gpu3/gpu:0,batch_size=16", "gpu2/gpu:0"],
            ["gpu2/gpu:0 batch_size=8", "gpu3/gpu:0", "gpu2/gpu:0"],
            "ABC",
        ),
        (["gpu:3"], ["gpu:3"], "A"),
        (
            ["cpu,prefetch=off,batch_size=8", "cpu,prefetch=auto,batch_size=8", "gpu:0,batch_size=8"],
            ["cpu prefetch=off", "cpu prefetch=auto", "gpu:0"],
            "ABC",
        ),
        (["cpu,prefetch=1", "cpu,prefetch=1", "cpu"], ["cpu prefetch=1 #1", "cpu prefetch=1 #2", "cpu"], "ABC"),
    ],
)
def test_lanes_are_named_by_device_and_what_distinguishes_them_on_it(texts, names, ids):
    found = name_lanes([parse_lane(text, COMMON) for text in texts])
    assert [lane.name for lane in found] == names
    assert "".join(lane.id for lane in found) == ids

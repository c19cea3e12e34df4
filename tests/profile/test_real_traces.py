"""Two traces that TensorFlow wrote; `record_traces.py` made them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfmon.profile.breakdown import read_profile
from tfmon.profile.trace import read_space

DATA = Path(__file__).parent / "data"


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("version", "events", "step_us", "ops_us", "stages_us"),
    [
        ("2.21", 1603, 753.963, 495.809, {"ForeverRepeat": 64.456, "TensorSlice": 49.310, "Batch": 45.069}),
        ("2.18", 1599, 674.1648, 414.998, {"ForeverRepeat": 72.378, "TensorSlice": 51.465, "Batch": 45.047}),
    ],
)
def test_it_agrees_with_tensorflows_own_reader(version, events, step_us, ops_us, stages_us):
    """The numbers come from TensorFlow: its generated protobuf class, and its table of host operations."""
    path = DATA / f"dense-tf{version}.xplane.pb"
    assert sum(len(line.events) for plane in read_space(path).planes for line in plane.lines) == events
    profile = read_profile(path)
    assert (profile.steps, profile.mode, profile.bottleneck.kind) == (5, "graph", "dispatch")
    assert profile.step_ns / 1e3 == pytest.approx(step_us, abs=1e-3)
    assert 5 * profile.ops.time_ns / 1e3 == pytest.approx(ops_us, abs=1e-3)
    found = {stage.name: 5 * stage.busy_ns / 1e3 for stage in profile.input.stages}
    assert found == pytest.approx(stages_us, abs=1e-3)
    # 129 operations a step are recorded, and the first layer's fused product took most.
    assert profile.ops.runs == 5 * 129
    assert {op.count for op in profile.ops.top} == {5}
    assert profile.ops.top[0].name == "sequential_1/dense_1/Relu"
    assert {stage.name: stage.elements for stage in profile.input.stages} == {
        "ForeverRepeat": 10,
        "TensorSlice": 10,
        "Batch": 1,
    }

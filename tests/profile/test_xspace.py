"""The reader of traces, against traces that TensorFlow's own protobuf classes write."""

from pathlib import Path

import pytest

from tfmon.profile.breakdown import profile_of, read_profile
from tfmon.profile.operations import tells
from tfmon.profile.trace import Space, TraceError, read_space

pytestmark = [pytest.mark.tensorflow, pytest.mark.trainer]
DATA = Path(__file__).parent / "data"


@pytest.fixture
def written(tmp_path):
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    def write(*lines: dict[str, object], name: str = "/host:CPU", errors: tuple[str, ...] = ()) -> Space:
        trace = xplane_pb2.XSpace(errors=errors)
        plane = trace.planes.add(name=name)
        for number, title in {1: "a", 2: "b", 3: "train"}.items():
            plane.event_metadata[number].name = title
        for number, title in {1: "id", 2: "kind", 3: "by reference"}.items():
            plane.stat_metadata[number].name = title
        plane.lines.extend(xplane_pb2.XLine(**line) for line in lines)
        file = tmp_path / "made.xplane.pb"
        file.write_bytes(trace.SerializeToString())
        return read_space(file, write.wanted)

    write.wanted = lambda *_: True
    return write


def event(number: int, start: int, length: int, *stats: dict[str, object]) -> dict[str, object]:
    return {"metadata_id": number, "offset_ps": start, "duration_ps": length, "stats": stats}


def test_lines_count_from_their_own_beginning_and_outer_events_come_first(written):
    read = written(
        {"name": "early", "timestamp_ns": 500, "events": [event(1, 7, 1), event(2, 7, 5), event(3, 2, 9)]},
        {"name": "x", "display_name": "late", "timestamp_ns": 700, "events": [event(9, 1, 1)]},
        errors=("lost some",),
    )
    early, late = read.planes[0].lines
    assert (read.events, read.troubles) == (4, ("lost some",))
    assert [tuple(one[:3]) for one in early.events] == [(2, 11, "train"), (7, 12, "b"), (7, 8, "a")]
    assert (late.name, [tuple(one[:3]) for one in late.events]) == ("late", [(200_001, 200_002, "")])


@pytest.mark.parametrize("path", sorted(DATA.glob("*.xplane.pb")), ids=lambda path: path.stem)
def test_a_profile_says_the_same_without_the_events_that_it_does_not_want(path):
    assert profile_of(read_space(path, tells)) == profile_of(read_space(path))


def test_what_cannot_be_read_is_refused_in_words(written, tmp_path):
    torn = tmp_path / "torn"
    torn.write_bytes((DATA / "dense-tf2.21.xplane.pb").read_bytes()[:999])
    for path, word in {tmp_path / "none": "No such file", tmp_path: "directory", torn: "damaged"}.items():
        with pytest.raises(TraceError, match=word):
            read_space(path)
    with pytest.raises(TraceError, match="damaged"):
        written({"events": [event(1, 5, -1)]})


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
    elements = {stage.name: stage.elements for stage in profile.input.stages}
    assert elements == {"ForeverRepeat": 10, "TensorSlice": 10, "Batch": 1}

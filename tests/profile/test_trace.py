"""Sets of time, held against sets of whole numbers; a trace as JSON for viewers; and any trace at all."""

import itertools
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_lanes import Mark, mark, plane, space

from tfmon.model.header import JSON_SCHEMA
from tfmon.model.profile import Call, Ops
from tfmon.model.readings import known
from tfmon.profile.breakdown import profile_of
from tfmon.profile.trace import Times, TraceError, write_chrome
from tfmon.reports.profile_report import WIDTH, to_json, to_text

spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=8)


def moments(times) -> set[int]:
    return {moment for start, end in times for moment in range(start, end)}


@given(spans, spans)
def test_sets_of_time_behave_as_sets_and_are_sorted(left, right):
    a, b = Times(left), Times(right)
    assert moments(a) == moments(left)
    assert moments(a & b) == moments(left) & moments(right)
    assert moments(a - b) == moments(left) - moments(right)
    assert a.total == len(moments(left))
    assert all(before[1] < after[0] for before, after in itertools.pairwise(a)), "intervals that touch are one"
    for times in (a, a & b, a - b):
        assert all(start < end for start, end in times)
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(times))


def exported(trace, tmp_path) -> list[dict]:
    path = tmp_path / "trace.json"
    count = write_chrome(trace, path)
    written = json.loads(path.read_text(), parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert len(written["traceEvents"]) == count
    return written["traceEvents"]


def test_an_event_has_its_place_its_length_and_its_stats_and_a_failed_write_is_told(tmp_path):
    stats = {"id": -(1 << 60), "ratio": math.inf, "nothing": math.nan, "small": 7, "how": "xla"}
    trace = space(plane("/host:CPU", {"main": [], "python": [mark("step", 5, 2.5, **stats)]}))
    *names, event = exported(trace, tmp_path)
    assert [(name["name"], name["pid"], name["tid"], name["args"]["name"]) for name in names] == [
        ("process_name", 1, 0, "/host:CPU"),
        ("thread_name", 1, 1, "main"),
        ("thread_name", 1, 2, "python"),
    ]
    where = {"pid": 1, "tid": 2, "ts": 5, "dur": 2.5}
    # Numbers that JSON or a viewer cannot represent are text.
    written = {"id": str(-(1 << 60)), "ratio": "inf", "nothing": "nan", "small": 7, "how": "xla"}
    assert event == {"ph": "X", "name": "step", **where, "args": written}
    assert exported(space(), tmp_path) == []
    with pytest.raises(TraceError, match="cannot be written"):
        write_chrome(space(), tmp_path)


NAMES = [
    "train", "step", "TFE_Py_ExecuteCancelable", "TFE_Py_FastPathExecute_C", "EagerExecute",
    "EagerLocalExecute: Mul", "EagerLocalExecute: IteratorGetNext", "KernelAndDeviceFunc::Run",
    "IteratorGetNextOp::DoCompute", "Iterator::Root::Prefetch", "Iterator::Root::Prefetch::Map",
    "Iterator::Root::Prefetch::ParallelMapV2::BatchV2", "InstantiatedCapturedFunction::RunAsync",
    "ExecutorState::Process", "FunctionRun", "tf.function-graph_building", "CpuCompiler::RunBackend",
    "net/dense/MatMul:MatMul", "PyFunc:PyFunc", "MemcpyH2D", "MemcpyD2H", "sgemm" * 30,
    "gradient_tape/" + "a_very_long_scope/" * 9 + "MatMul:MatMul",
]  # fmt: skip
stats = st.fixed_dictionaries(
    {},
    optional={
        "step_num": st.integers(0, 3),
        "id": st.integers(0, 3),
        "hlo_op": st.sampled_from(["fusion.1", "dot"]),
        "tf_function_call": st.sampled_from(["traced-nonXla", "notTraced-xla"]),
        "memcpy_details": st.sampled_from(["kind:H2D size:8", ""]),
    },
)
times = st.integers(0, 60).map(float)
marks = st.lists(st.builds(Mark, st.sampled_from(NAMES), times, times, stats), max_size=14)
step = st.builds(Mark, st.just("train"), times, times, st.just({"step_num": 1}))
streams = st.fixed_dictionaries({"Stream #1": marks, "Stream #2": marks})


def leaves(value, path=""):
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            if path or key != "missing":
                yield from leaves(inner, f"{path}.{key}".lstrip("."))
    else:
        yield path, value


@settings(max_examples=60)
@given(st.lists(step, max_size=3), marks, marks, st.none() | streams, st.booleans())
def test_it_is_analysed_or_refused(steps, loop, pool, gpu, on_gpu):
    host = plane("/host:CPU", {"python": steps + loop, "pool": pool})
    gpus = [] if gpu is None else [plane("/device:GPU:0", gpu)]
    trace = space(host, *gpus, errors=["something " * 30])
    try:
        profile = profile_of(trace, on_gpu=on_gpu, parts=True)
    except TraceError as error:
        assert "no step marked" in error.message or "no time" in error.message
        return
    call = profile.call if isinstance(profile.call, Call) else None
    whole = profile.step_ns
    parts = [known(profile.input.wait_ns), known(profile.sync_ns), profile.other_ns, profile.drain_ns]
    parts.append(call and call.total_ns)
    assert sum(part or 0.0 for part in parts) == pytest.approx(whole)
    if call is not None:
        inner = (call.dispatch_ns, known(call.compute_ns), call.tracing_ns, call.compile_ns)
        assert sum(part or 0.0 for part in inner) == pytest.approx(call.total_ns)
        assert (known(call.python_ns) or 0.0) <= call.dispatch_ns + 1e-6
    for device in profile.devices:
        busy = device.kernels_ns + device.h2d_exposed_ns + device.d2h_exposed_ns
        assert busy + device.idle_ns == pytest.approx(whole)
        idle = (device.idle_input_ns, device.idle_launch_ns, device.idle_tracing_ns, device.idle_other_ns)
        assert sum(idle) == pytest.approx(device.idle_ns) and min(idle) >= 0
    assert sum(part.step_ns for part in profile.parts) == pytest.approx(whole)
    assert min(part.step_ns for part in profile.parts) >= 0
    if isinstance(profile.ops, Ops):
        assert profile.ops.busy_ns <= whole * (1 + 1e-9)
        assert sum(op.share for op in profile.ops.top) <= 1 + 1e-9
    assert all(stage.busy_ns > 0 for stage in profile.input.stages)
    assert profile.host_only == (on_gpu and not profile.devices)
    plain = to_json(profile)
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert {path for path, value in leaves(plain) if value is None} == set(plain["missing"])
    assert plain["schema"] == JSON_SCHEMA and all(plain["missing"].values())
    lines = to_text(profile).splitlines()
    assert max(map(len, lines)) <= WIDTH == 100 and lines[-1]
    assert all(line == line.rstrip() for line in lines)

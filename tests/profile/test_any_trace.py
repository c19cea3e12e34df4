"""Whatever is in a trace, it is analysed or refused in words, and the parts of a step make up the step."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_writer import Mark, plane, space

from tfmon.model.profile import Call, Ops
from tfmon.model.readings import known
from tfmon.profile.breakdown import profile_of
from tfmon.profile.trace import TraceError
from tfmon.reports.steps import WIDTH, to_json, to_text

NAMES = [
    "train", "step", "TFE_Py_ExecuteCancelable", "TFE_Py_FastPathExecute_C", "EagerExecute",
    "EagerLocalExecute: Mul", "EagerLocalExecute: IteratorGetNext", "KernelAndDeviceFunc::Run",
    "IteratorGetNextOp::DoCompute", "Iterator::Root::Prefetch", "Iterator::Root::Prefetch::Map",
    "Iterator::Root::Prefetch::ParallelMapV2::BatchV2", "InstantiatedCapturedFunction::RunAsync",
    "ExecutorState::Process", "FunctionRun", "tf.function-graph_building", "CpuCompiler::RunBackend",
    "net/dense/MatMul:MatMul", "PyFunc:PyFunc", "MemcpyH2D", "MemcpyD2H", "sgemm",
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
hosts = st.builds(
    lambda steps, loop, other: plane("/host:CPU", {"python": steps + loop, "pool": other}),
    st.lists(step, max_size=3),
    marks,
    marks,
)
gpus = st.builds(
    lambda first, second: plane("/device:GPU:0", {"Stream #1": first, "Stream #2": second}), marks, marks
)


@settings(max_examples=150)
@given(hosts, st.none() | gpus, st.booleans())
def test_it_is_analysed_or_refused(host, gpu, on_gpu):
    trace = space(host, *([] if gpu is None else [gpu]))
    try:
        profile = profile_of(trace, on_gpu=on_gpu)
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
    if isinstance(profile.ops, Ops):
        assert profile.ops.busy_ns <= whole * (1 + 1e-9)
        assert sum(op.share for op in profile.ops.top) <= 1 + 1e-9
    assert all(stage.busy_ns > 0 for stage in profile.input.stages)
    assert profile.host_only == (on_gpu and not profile.devices)
    json.dumps(to_json(profile), allow_nan=False)
    assert max(map(len, to_text(profile).splitlines())) <= WIDTH

"""The time of a step in parts: they add up to it, and what is hidden has none of it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_lanes import (
    calling,
    gpu,
    gpu_lane,
    graph_lane,
    mark,
    marker,
    one_call,
    single,
    space,
    trace,
    us,
    waiting,
)
from test_gpu import COMPUTE, LANES, TO_DEVICE, TO_HOST, copy, kernel, launching

from tfmon.profile.breakdown import profile_of
from tfmon.profile.operations import OpRun
from tfmon.profile.parts import MOST_PARTS, SMALLER, shared
from tfmon.profile.trace import Space, total, unite

IN_PYTHON, IN_RUNTIME = "dispatch, in Python", "dispatch, in TensorFlow's runtime"


def parts(space_: Space) -> dict[str, float]:
    profile = profile_of(space_, parts=True)
    assert sum(part.step_ns for part in profile.parts) == pytest.approx(profile.step_ns)
    return {part.name: us(part.step_ns) for part in profile.parts}


def test_a_step_on_the_cpu():
    assert parts(graph_lane(input_us=100, call_us=800, op_us=700)) == {
        "net/dense/MatMul": 700, "waiting for input": 100, IN_RUNTIME: 90, IN_PYTHON: 10,
        "outside of input and step": 100,
    }  # fmt: skip


def test_operations_that_run_at_once_share_the_time_and_keep_their_own():
    other = [mark("ExecutorState::Process", 300, 200, id=1), mark("b/Relu:Relu", 300, 200)]
    lane = one_call([("a/MatMul:MatMul", 100, 400)], **{"tf_Compute/2": other})
    result = {part.name: part for part in profile_of(lane, parts=True).parts if part.runs}
    assert {name: us(part.step_ns) for name, part in result.items()} == {"a/MatMul": 300, "b/Relu": 100}
    assert {name: us(part.self_ns) for name, part in result.items()} == {"a/MatMul": 400, "b/Relu": 200}


def test_an_operation_within_another_has_its_own_time():
    found = parts(one_call([("a/While:While", 100, 400), ("a/Mul:Mul", 150, 100), ("a/Add:Add", 300, 50)]))
    assert (found["a/While"], found["a/Mul"], found["a/Add"]) == (250, 100, 50)


def test_eager_operations_are_told_from_starting_them():
    steps = [marker(0, 0), *waiting(0, 50), *single("Mul", 60, 80, 60), *single("Add", 200, 80, 30)]
    found = parts(trace({"python": steps}))
    assert (found["Mul"], found["Add"], found["waiting for input"]) == (60, 30, 50)


@pytest.mark.parametrize("lane", LANES.values(), ids=LANES)
def test_a_step_on_a_gpu_is_made_up_of_its_parts(lane):
    parts(lane)


def test_the_idle_time_of_a_gpu_is_told_apart():
    queues = {COMPUTE: kernel(400, 300), TO_DEVICE: copy(350, 100, "H2D"), TO_HOST: copy(690, 60, "D2H")}
    found = parts(gpu_lane(launching(200, 400), queues))
    assert found == {
        "net/MatMul": 300, "copies from the host": 50, "copies to the host": 50, "waiting for input": 200,
        IN_PYTHON: 10, IN_RUNTIME: 140, "outside of input and step": 250,
    }  # fmt: skip


def test_a_gpu_that_is_slow_to_begin_what_is_launched_does_not_wait_for_the_host():
    def loop(n: int, at: float):
        launch = mark("cuLaunchKernel", at + 250, 20, correlation_id=70 + n)
        return [marker(n, at), *waiting(at, 200), *calling(at + 200, 600, n + 1), launch]

    def work(n: int, at: float):
        return [mark("sgemm", at + 300, 200, tf_op="net/MatMul:MatMul", correlation_id=70 + n)]

    found = parts(gpu_lane(loop, {COMPUTE: work}))
    assert found["waiting for what is launched to begin"] == 30
    assert (found[IN_PYTHON], found[IN_RUNTIME]) == (10, 360)


def test_adding_gradients_up_counts_where_nothing_computes():
    queues = {COMPUTE: kernel(100, 300), "Stream #20(Kernel)": kernel(300, 300, "sum/NcclAllReduce:NcclAllReduce")}
    found = parts(gpu_lane(launching(50, 100), queues))
    assert (found["net/MatMul"], found["sum/NcclAllReduce"]) == (300, 200)


def test_a_gpu_that_left_nothing_has_no_operations():
    profile = profile_of(graph_lane(), on_gpu=True, parts=True)
    assert not any(part.runs for part in profile.parts)
    assert sum(part.step_ns for part in profile.parts) == pytest.approx(profile.step_ns)


def test_the_many_small_ones_are_one_part():
    many = [(f"op{n}/Mul:Mul", 20 + n * 0.5, 0.25) for n in range(MOST_PARTS + 5)]
    found = parts(one_call(many))
    assert found[SMALLER] == pytest.approx(5 * 0.25)
    assert sum(name.startswith("op") for name in found) == MOST_PARTS


def test_what_runs_on_xlas_threads_without_a_name_is_told_from_dispatch():
    call = calling(0, 900, 1, "notTraced-xla")
    inside = [mark("convolution.1", 100, 200, hlo_op="convolution.1"), mark("BlockUntilReady", 300, 500)]
    found = parts(trace({"python": [marker(0, 0), *call, *inside]}))
    assert (found["convolution.1"], found["waiting for XLA's threads"]) == (200, 500)


def test_a_trace_of_jax_has_its_operations_although_it_has_no_call_of_tensorflow():
    steps = [marker(0, 0), marker(1, 1000)]
    on_cpu = parts(trace({"python": steps, "tf_XLAPjRtCpuClient/1": [mark("dot.3", 200, 500, hlo_op="dot.3")]}))
    assert on_cpu == {"dot.3": 250, "outside of input and step": 750}
    kernel_of = mark("gemm_fusion", 300, 600, hlo_op="gemm_fusion.1", hlo_module="jit_step", correlation_id=3)
    on_gpu = parts(trace({"python": steps}, gpu({"Stream #19(Compute)": [kernel_of]})))
    assert on_gpu == {"gemm_fusion.1": 300, "outside of input and step": 700}


def test_a_profile_without_parts_has_none():
    assert profile_of(space(*graph_lane().planes)).parts == ()


runs_of = st.lists(
    st.builds(
        lambda start, length, thread, layer: OpRun("a", "A", "CPU", start, start + length, 0, thread, layer),
        st.integers(-50, 1050), st.integers(0, 300), st.integers(0, 3), st.integers(0, 3),
    ),
    max_size=30,
)  # fmt: skip


@given(runs_of)
@settings(max_examples=100)
def test_the_shares_add_up_to_the_time_in_which_anything_ran(runs: list[OpRun]):
    shares = shared(runs, (0, 1000))
    ran = unite((max(0, run.start_ps), min(1000, run.end_ps)) for run in runs)
    assert sum(shares) == pytest.approx(total(ran))
    assert all(-1e-6 <= share <= run.end_ps - run.start_ps + 1e-6 for share, run in zip(shares, runs, strict=True))

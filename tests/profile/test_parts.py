"""The parts of a step: their times add up to the step, and hidden time counts for no part."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_lanes import (
    calling,
    gpu_lane,
    graph_lane,
    mark,
    marker,
    one_call,
    us,
    waiting,
)
from test_gpu import COMPUTE, TO_DEVICE, TO_HOST, copy, kernel, launching

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


def test_the_many_small_ones_are_one_part():
    many = [(f"op{n}/Mul:Mul", 20 + n * 0.5, 0.25) for n in range(MOST_PARTS + 5)]
    found = parts(one_call(many))
    assert found[SMALLER] == pytest.approx(5 * 0.25)
    assert sum(name.startswith("op") for name in found) == MOST_PARTS


runs_of = st.lists(
    st.builds(
        lambda start, length, thread, layer: OpRun("a", "A", "CPU", start, start + length, 0, thread, layer),
        st.integers(-50, 1050), st.integers(0, 300), st.integers(0, 3), st.integers(0, 3),
    ),
    max_size=30,
)  # fmt: skip


@given(runs_of)
@settings(max_examples=100)
def test_the_shares_add_up_to_the_time_in_which_anything_ran(runs):
    shares = shared(runs, (0, 1000))
    ran = unite((max(0, run.start_ps), min(1000, run.end_ps)) for run in runs)
    assert sum(shares) == pytest.approx(total(ran))
    assert all(-1e-6 <= share <= run.end_ps - run.start_ps + 1e-6 for share, run in zip(shares, runs, strict=True))

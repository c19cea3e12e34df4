"""Lanes on a GPU, and the parts of a step: their times add up, and hidden time counts for no part."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_lanes import (
    PERIOD,
    calling,
    each_step,
    gpu,
    gpu_lane,
    graph_lane,
    mark,
    marker,
    one_call,
    single,
    trace,
    us,
    waiting,
)

from tfmon.model.profile import Ops
from tfmon.model.readings import Missing
from tfmon.profile.breakdown import profile_of
from tfmon.profile.operations import OpRun
from tfmon.profile.parts import MOST_PARTS, SMALLER, shared
from tfmon.profile.trace import Space, Times

COMPUTE, TO_DEVICE, TO_HOST = "Stream #13(Kernel)", "Stream #14(MemcpyH2D)", "Stream #15(MemcpyD2H)"


def launching(input_us: float, call_us: float):
    """A loop that waits and launches, and is outside of both for the rest of the step."""
    return lambda n, at: [marker(n, at), *waiting(at, input_us), *calling(at + input_us, call_us, n + 1)]


def kernel(start: float, length: float, op: str = "net/MatMul:MatMul"):
    return lambda _n, at: [mark("ampere_sgemm_128x64", at + start, length, tf_op=op, correlation_id=7)]


def copy(start: float, length: float, kind: str, size: int = 4096):
    details = f"kind_src:pageable kind_dst:device size:{size} dest:0 async:1"
    return lambda _n, at: [mark(f"Memcpy{kind}", at + start, length, memcpy_details=details)]


def muls(n, at):
    """A loop that starts nine operations one by one."""
    each = (single("Mul", at + 60 + 100 * k, 80, 60) for k in range(9))
    return [marker(n, at), *waiting(at, 50), *(one for marks in each for one in marks)]


LANES = {
    "compute": gpu_lane(launching(50, 100), {COMPUTE: kernel(20, 900)}),
    "input": gpu_lane(launching(600, 200), {COMPUTE: kernel(650, 300)}),
    "dispatch": gpu_lane(launching(50, 900), {COMPUTE: kernel(200, 200)}),
    "transfer": gpu_lane(launching(50, 900), {TO_DEVICE: copy(60, 450, "H2D"), COMPUTE: kernel(460, 250)}),
    "sync": gpu_lane(launching(100, 250), {COMPUTE: kernel(300, 600)}),
    "eager": gpu_lane(muls, {COMPUTE: kernel(300, 200, "Mul:Mul")}),
}


@pytest.mark.parametrize("expected", LANES)
def test_what_limits_it(expected):
    bottleneck = profile_of(LANES[expected]).bottleneck
    assert bottleneck.kind == expected and sum(bottleneck.shares.values()) == pytest.approx(1)


def two_gpus(first: dict, second: dict):
    """A lane on two GPUs that launches early in a step."""
    loop = launching(50, 100)
    lines = ({name: each_step(4, part) for name, part in one.items()} for one in (first, second))
    return trace({"python3": each_step(4, loop)}, *(gpu(queues, index) for index, queues in enumerate(lines)))


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", ""),
        ("void sum", "adam/CollectiveReduceV2:CollectiveReduceV2"),
    ],
)
def test_an_all_reduce_that_no_kernel_hides_limits_a_lane_on_two_gpus(name, op):
    stats = {"tf_op": op} if op else {}

    def reducing(start, length):
        return lambda _n, at: [mark(name, at + start, length, **stats)]

    busier = {COMPUTE: kernel(60, 440), "Stream #16(Kernel)": reducing(400, 500)}
    other = {COMPUTE: kernel(60, 300), "Stream #16(Kernel)": reducing(400, 490)}
    profile = profile_of(two_gpus(busier, other))
    first, _ = profile.devices
    assert (us(first.kernels_ns), us(first.all_reduce_ns)) == (840, 400), "what a kernel hides costs nothing"
    assert profile.bottleneck.kind == "mixed"
    assert "adding gradients up over the GPUs while nothing is computed takes 40 %" in profile.bottleneck.text
    assert "running operations 44 %" in profile.bottleneck.text
    assert profile.bottleneck.shares["all-reduce"] == pytest.approx(0.4)
    more = {COMPUTE: kernel(60, 240), "Stream #16(Kernel)": reducing(200, 700)}
    assert profile_of(two_gpus(more, more)).bottleneck.text.startswith("all-reduce-bound: adding gradients up")


def test_a_copy_behind_a_kernel_is_hidden():
    derived = ("Steps", "TensorFlow Ops", "TensorFlow Name Scope", "XLA Modules", "XLA Ops")
    lane = gpu_lane(
        launching(50, 300),
        {
            TO_DEVICE: copy(100, 300, "H2D", 1000), COMPUTE: kernel(200, 500), TO_HOST: copy(650, 150, "D2H", 4),
            **dict.fromkeys(derived, kernel(0, 1000)),  # the profiler made these lines from others
        },
    )  # fmt: skip
    (one,) = profile_of(lane).devices
    assert (us(one.h2d_ns), us(one.h2d_exposed_ns), one.h2d_bytes) == (300, 100, 1000)
    assert (us(one.d2h_ns), us(one.d2h_exposed_ns), one.d2h_bytes) == (150, 100, 4)
    assert (us(one.kernels_ns), us(one.idle_ns)) == (500, 300)
    both_ways = {TO_DEVICE: copy(100, 100, "H2D"), TO_HOST: copy(150, 100, "D2H")}
    (one,) = profile_of(gpu_lane(launching(50, 300), both_ways)).devices
    assert (us(one.h2d_exposed_ns), us(one.d2h_exposed_ns)) == (100, 50)


@pytest.mark.parametrize(
    ("name", "details", "way"),
    [
        ("MemcpyH2D", "", "h2d"),
        ("Memcpy HtoD", "", "h2d"),
        ("MemcpyD2H", "kind:D2H size:8", "d2h"),
        ("MemcpyOther", "kind:H2D size:8", "h2d"),
        ("MemcpyD2D", "kind:D2D size:8", "kernel"),
        ("MemcpyP2P", "", "kernel"),
        ("Memset", "", "kernel"),
        ("void h2d_kernel<float>", "", "kernel"),
    ],
)
def test_what_is_a_copy_from_or_to_the_host(name, details, way):
    stats = {"memcpy_details": details} if details else {}
    queues = {"Stream #1": lambda _n, at: [mark(name, at + 200, 70, **stats)]}
    (one,) = profile_of(gpu_lane(launching(50, 100), queues)).devices
    found = {"h2d": one.h2d_ns, "d2h": one.d2h_ns, "kernel": one.kernels_ns}
    assert {kind: us(time_ns) for kind, time_ns in found.items() if time_ns} == {way: 70}


def test_the_capture_lasts_until_the_gpu_has_done_its_work():
    lane = gpu_lane(launching(10, 100), {COMPUTE: lambda n, at: kernel(0, 3 * PERIOD)(n, 3 * at + 100)}, steps=2)
    profile = profile_of(lane)
    assert us(profile.step_ns) == (6 * PERIOD + 100) / 2
    assert us(profile.devices[0].kernels_ns) == 3 * PERIOD
    assert us(profile.drain_ns) == (4 * PERIOD + 100) / 2
    # The loop's work outside the steps is not mixed up with the wait for the last work.
    assert us(profile.sync_ns) + us(profile.other_ns) == 890


def test_operations_are_the_kernels_by_what_they_were_launched_for():
    def queue(_n, at):
        return [
            mark("sgemm_1", at + 100, 50, tf_op="net/dense/MatMul:MatMul"),
            mark("sgemm_2", at + 200, 50, tf_op="net/dense/MatMul:MatMul"),
            mark("loop_fusion_7", at + 300, 30, hlo_op="fusion.7"),
            mark("memset_kernel", at + 400, 5),
            mark("cudnn", at + 500, 9, tf_op="XlaModule:", name="jit(train)/jvp(net)/conv", hlo_op="cudnn-conv.2"),
            mark("fusion_3", at + 600, 7, tf_op="XlaModule:", hlo_op="command_buffer_1", cuda_graph_id=19),
        ]

    ops = profile_of(gpu_lane(launching(10, 100), {COMPUTE: queue})).ops
    assert isinstance(ops, Ops)
    found = [(op.name, op.kind, op.device, op.count, us(op.self_ns)) for op in ops.top]
    assert found == [
        ("net/dense/MatMul", "MatMul", "GPU:0", 8, 100),
        ("fusion.7", "fusion", "GPU:0", 4, 30),
        ("jit(train)/jvp(net)/conv", "conv", "GPU:0", 4, 9),
        ("fusion_3", "fusion_3", "GPU:0", 4, 7),
        ("memset_kernel", "memset_kernel", "GPU:0", 4, 5),
    ]


def test_of_several_gpus_the_busiest_is_judged_and_named_first():
    profile = profile_of(two_gpus({COMPUTE: kernel(100, 10)}, {COMPUTE: kernel(100, 900)}))
    assert [one.name for one in profile.devices] == ["GPU:1", "GPU:0"]
    assert profile.bottleneck.kind == "compute"
    assert "2 GPUs" in profile.notes[0]


def test_a_trace_of_the_host_alone_tells_its_side_and_makes_nothing_up():
    """As of a Mac's Metal plugin, which records no event of the GPU."""
    lane = trace({"python": each_step(4, launching(500, 400))})
    profile = profile_of(lane, on_gpu=True)
    assert profile.host_only and "only the host" in profile.notes[0] and profile.devices == ()
    for part in (profile.bottleneck, profile.ops, profile.sync_ns, profile.call.compute_ns):
        assert isinstance(part, Missing)
    assert (us(profile.input.wait_ns), us(profile.call.total_ns)) == (500, 400)
    on_cpu = profile_of(lane)
    assert not on_cpu.host_only and on_cpu.notes == ()


IN_PYTHON, IN_RUNTIME = "dispatch, in Python", "dispatch, in TensorFlow's runtime"


def parts(space_: Space) -> dict[str, float]:
    profile = profile_of(space_, parts=True)
    assert sum(part.step_ns for part in profile.parts) == pytest.approx(profile.step_ns)
    return {part.name: us(part.step_ns) for part in profile.parts}


def test_the_parts_of_a_step_on_the_cpu_and_of_the_idle_time_of_a_gpu():
    assert parts(graph_lane(input_us=100, call_us=800, op_us=700)) == {
        "net/dense/MatMul": 700, "waiting for input": 100, IN_RUNTIME: 90, IN_PYTHON: 10,
        "outside of input and step": 100,
    }  # fmt: skip
    queues = {COMPUTE: kernel(400, 300), TO_DEVICE: copy(350, 100, "H2D"), TO_HOST: copy(690, 60, "D2H")}
    assert parts(gpu_lane(launching(200, 400), queues)) == {
        "net/MatMul": 300, "copies from the host": 50, "copies to the host": 50, "waiting for input": 200,
        IN_PYTHON: 10, IN_RUNTIME: 140, "outside of input and step": 250,
    }  # fmt: skip


def test_operations_that_run_at_once_share_the_time_and_keep_their_own():
    other = [mark("ExecutorState::Process", 300, 200, id=1), mark("b/Relu:Relu", 300, 200)]
    lane = one_call([("a/MatMul:MatMul", 100, 400)], **{"tf_Compute/2": other})
    result = {part.name: part for part in profile_of(lane, parts=True).parts if part.runs}
    assert {name: us(part.step_ns) for name, part in result.items()} == {"a/MatMul": 300, "b/Relu": 100}
    assert {name: us(part.self_ns) for name, part in result.items()} == {"a/MatMul": 400, "b/Relu": 200}


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


operation = st.tuples(st.integers(-50, 1050), st.integers(0, 300), st.integers(0, 3), st.integers(0, 3))


@given(st.lists(operation, max_size=30))
@settings(max_examples=100)
def test_the_shares_add_up_to_the_time_in_which_anything_ran(operations):
    runs = [OpRun("a", "A", "CPU", start, start + length, 0, *where) for start, length, *where in operations]
    shares = shared(runs, (0, 1000))
    ran = Times((max(0, run.start_ps), min(1000, run.end_ps)) for run in runs)
    assert sum(shares) == pytest.approx(ran.total)
    assert all(-1e-6 <= share <= run.end_ps - run.start_ps + 1e-6 for share, run in zip(shares, runs, strict=True))

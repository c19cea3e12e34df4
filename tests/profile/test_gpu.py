"""Lanes on a GPU: the work of the GPU, and the host's work during its idle time."""

import pytest
from made_lanes import PERIOD, calling, each_step, gpu, gpu_lane, mark, marker, single, trace, us, waiting

from tfmon.model.profile import GpuTime, Ops
from tfmon.model.readings import Missing
from tfmon.profile.breakdown import profile_of

COMPUTE, TO_DEVICE, TO_HOST = "Stream #13(Kernel)", "Stream #14(MemcpyH2D)", "Stream #15(MemcpyD2H)"


def launching(input_us: float, call_us: float):
    """A loop that waits and launches, and is outside of both for the rest of the step."""
    return lambda n, at: [marker(n, at), *waiting(at, input_us), *calling(at + input_us, call_us, n + 1)]


def kernel(start: float, length: float, op: str = "net/MatMul:MatMul"):
    return lambda _n, at: [mark("ampere_sgemm_128x64", at + start, length, tf_op=op, correlation_id=7)]


def copy(start: float, length: float, kind: str, size: int = 4096):
    details = f"kind_src:pageable kind_dst:device size:{size} dest:0 async:1"
    return lambda _n, at: [mark(f"Memcpy{kind}", at + start, length, memcpy_details=details)]


def device(lane, **kwargs) -> GpuTime:
    (one,) = profile_of(lane, **kwargs).devices
    return one


LANES = {
    "compute": gpu_lane(launching(50, 100), {COMPUTE: kernel(20, 900)}),
    "input": gpu_lane(launching(600, 200), {COMPUTE: kernel(650, 300)}),
    "dispatch": gpu_lane(launching(50, 900), {COMPUTE: kernel(200, 200)}),
    "transfer": gpu_lane(launching(50, 900), {TO_DEVICE: copy(60, 450, "H2D"), COMPUTE: kernel(460, 250)}),
    "sync": gpu_lane(launching(100, 250), {COMPUTE: kernel(300, 600)}),
    "eager": gpu_lane(
        lambda n, at: [
            marker(n, at),
            *waiting(at, 50),
            *(one for k in range(9) for one in single("Mul", at + 60 + 100 * k, 80, 60)),
        ],
        {COMPUTE: kernel(300, 200, "Mul:Mul")},
    ),
}


@pytest.mark.parametrize("expected", LANES)
def test_what_limits_it_and_the_parts_of_a_device_make_up_the_step(expected):
    profile = profile_of(LANES[expected])
    assert profile.bottleneck.kind == expected
    (one,) = profile.devices
    parts = one.kernels_ns + one.h2d_exposed_ns + one.d2h_exposed_ns + one.idle_ns
    assert parts == pytest.approx(profile.step_ns)
    idle = one.idle_input_ns + one.idle_launch_ns + one.idle_tracing_ns + one.idle_other_ns
    assert idle == pytest.approx(one.idle_ns)
    assert sum(profile.bottleneck.shares.values()) == pytest.approx(1)


def two_gpus(first: dict, second: dict):
    """A lane on two GPUs that launches early in a step."""
    loop = launching(50, 100)
    queues = [
        gpu({name: each_step(4, part) for name, part in one.items()}, index)
        for index, one in enumerate((first, second))
    ]
    return trace({"python3": each_step(4, loop)}, *queues)


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

    profile = profile_of(
        two_gpus(
            {COMPUTE: kernel(60, 440), "Stream #16(Kernel)": reducing(400, 500)},
            {COMPUTE: kernel(60, 300), "Stream #16(Kernel)": reducing(400, 490)},
        )
    )
    first, _ = profile.devices
    assert (us(first.kernels_ns), us(first.all_reduce_ns)) == (840, 400), "what a kernel hides costs nothing"
    assert profile.bottleneck.kind == "mixed"
    assert "adding gradients up over the GPUs while nothing is computed takes 40 %" in profile.bottleneck.text
    assert "running operations 44 %" in profile.bottleneck.text
    assert profile.bottleneck.shares["all-reduce"] == pytest.approx(0.4)
    more = {COMPUTE: kernel(60, 240), "Stream #16(Kernel)": reducing(200, 700)}
    alone = profile_of(two_gpus(more, more)).bottleneck
    assert alone.kind == "all-reduce" and alone.text.startswith(
        "all-reduce-bound: adding gradients up over the GPUs"
    )


def test_an_idle_gap_is_blamed_on_what_the_loop_did_meanwhile():
    one = device(gpu_lane(launching(300, 400), {COMPUTE: kernel(600, 200)}))
    assert (us(one.idle_input_ns), us(one.idle_launch_ns), us(one.idle_other_ns)) == (300, 300, 200)
    assert (us(one.kernels_ns), us(one.idle_ns), one.name) == (200, 800, "GPU:0")


def test_a_copy_behind_a_kernel_is_hidden():
    lane = gpu_lane(
        launching(50, 300),
        {TO_DEVICE: copy(100, 300, "H2D", 1000), COMPUTE: kernel(200, 500), TO_HOST: copy(650, 150, "D2H", 4)},
    )
    one = device(lane)
    assert (us(one.h2d_ns), us(one.h2d_exposed_ns), one.h2d_bytes) == (300, 100, 1000)
    assert (us(one.d2h_ns), us(one.d2h_exposed_ns), one.d2h_bytes) == (150, 100, 4)
    both_ways = {TO_DEVICE: copy(100, 100, "H2D"), TO_HOST: copy(150, 100, "D2H")}
    one = device(gpu_lane(launching(50, 300), both_ways))
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
    one = device(gpu_lane(launching(50, 100), {"Stream #1": lambda _n, at: [mark(name, at + 200, 70, **stats)]}))
    found = {"h2d": one.h2d_ns, "d2h": one.d2h_ns, "kernel": one.kernels_ns}
    assert {kind: us(time_ns) for kind, time_ns in found.items() if time_ns} == {way: 70}


def test_lines_that_the_profiler_derives_are_not_counted():
    names = ("Steps", "TensorFlow Ops", "TensorFlow Name Scope", "XLA Modules", "XLA Ops")
    derived = {name: kernel(0, 1000) for name in names}
    one = device(gpu_lane(launching(50, 100), {COMPUTE: kernel(200, 100), **derived}))
    assert us(one.kernels_ns) == 100


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
    loop = each_step(4, launching(50, 100))
    busy, lazy = (
        gpu({COMPUTE: each_step(4, kernel(100, length))}, index) for length, index in ((900, 1), (10, 0))
    )
    profile = profile_of(trace({"python": loop}, lazy, busy))
    assert [one.name for one in profile.devices] == ["GPU:1", "GPU:0"]
    assert profile.bottleneck.kind == "compute"
    assert "2 GPUs" in profile.notes[0]


class TestHostOnly:
    """A trace as of a Mac's Metal plugin: a host plane without events of the GPU."""

    def lane(self, kind: str = "notTraced-nonXla"):
        loop = each_step(4, lambda n, at: [marker(n, at), *waiting(at, 500), *calling(at + 500, 400, n + 1, kind)])
        return trace({"python": loop})

    def test_it_tells_the_hosts_side_and_makes_nothing_up(self):
        profile = profile_of(self.lane(), on_gpu=True)
        assert profile.host_only and "only the host" in profile.notes[0]
        assert profile.devices == ()
        for part in (profile.bottleneck, profile.ops, profile.sync_ns, profile.call.compute_ns):
            assert isinstance(part, Missing)
        assert (us(profile.input.wait_ns), us(profile.call.total_ns)) == (500, 400)
        on_cpu = profile_of(self.lane())
        assert not on_cpu.host_only and on_cpu.notes == ()

"""Where the time of a step went, on traces in which it is known to the microsecond."""

import pytest
from made_lanes import (
    PERIOD,
    calling,
    each_step,
    mark,
    marker,
    one_call,
    plane,
    processing,
    single,
    space,
    trace,
    us,
    waiting,
)  # fmt: skip

from tfmon.model.readings import Missing
from tfmon.profile.breakdown import profile_of
from tfmon.profile.loop_thread import BUILDING
from tfmon.profile.operations import tells
from tfmon.profile.trace import Space, TraceError


class TestGraphOnTheCpu:
    def test_a_batch_that_the_compiled_step_takes_itself_is_waited_for(self):
        """`fit` of Keras 3: the function takes the batch, on a thread of the pipeline's."""
        taken, computed = "IteratorGetNextOp::DoCompute", ("dense/MatMul:MatMul", 750, 100)
        other = mark(taken, 0, 900, id=99)
        space = one_call([computed], **{"tf_data_get_next/1": [mark(taken, 50, 650, id=1)], "tf_data/2": [other]})
        profile = profile_of(space)
        assert (us(profile.input.wait_ns), us(profile.call.total_ns)) == (650, 250)
        assert (us(profile.call.compute_ns), profile.bottleneck.kind) == (100, "input")
        assert tells("tf_data_get_next/1", taken, ())

    def test_what_ran_before_and_after_the_capture_does_not_count(self):
        inside = each_step(2, lambda n, at: [marker(n, at + PERIOD), *calling(at + PERIOD, 800, n)])
        profile = profile_of(trace({"python": [*waiting(0, 900), *inside, *calling(3 * PERIOD, 900, 9)]}))
        assert isinstance(profile.input.wait_ns, Missing)
        assert us(profile.call.total_ns) == 800

    def test_without_a_marked_step_there_is_no_profile(self):
        with pytest.raises(TraceError, match="no step marked 'train'"):
            profile_of(trace({"python": [mark("train", 0, 5), *calling(0, 50, 1)]}))
        with pytest.raises(TraceError, match="no step marked"):
            profile_of(space(plane("/host:metadata", {})))


class TestOperations:
    def test_only_those_of_the_functions_that_the_loop_called_are_the_steps(self):
        loop = each_step(2, lambda n, at: [marker(n, at), *waiting(at, 100), *calling(at + 100, 500, n + 1)])
        step = each_step(2, lambda n, at: processing(n + 1, [("a/MatMul:MatMul", at + 200, 50)]))
        data = each_step(2, lambda n, at: processing(n + 77, [("PyFunc:PyFunc", at + 100, 400)]))
        profile = profile_of(trace({"python": loop, "tf_Compute/1": step, "tf_data_private_threadpool/1": data}))
        assert [op.kind for op in profile.ops.top] == ["MatMul"]
        assert (us(profile.call.compute_ns), us(profile.input.python_ns)) == (50, 400)

    def test_self_time_is_without_what_ran_inside_on_the_same_thread_and_other_events_are_no_operations(self):
        ops = [("f/call:PartitionedCall", 100, 300), ("f/MatMul:MatMul", 150, 200), ("f/Inner:Pow", 160, 30)]
        others = ("ThreadpoolListener::Record", "end: copy.2", "MemoryAllocation", "a:b:c", ":Mul")
        ops += [(name, 500 + 50 * place, 40) for place, name in enumerate(others)]
        found = {op.kind: us(op.self_ns) for op in profile_of(one_call(ops)).ops.top}
        assert found == {"PartitionedCall": 100, "MatMul": 170, "Pow": 30}


class TestEager:
    def lane(self, op_us: float, kernel_us: float) -> Space:
        def part(n, at):
            ops = [one for index in range(4) for one in single("MatMul", at + 100 + 200 * index, op_us, kernel_us)]
            return [marker(n, at), *waiting(at, 50), *ops]

        return trace({"python": each_step(4, part)})

    def test_all_but_input_and_kernels_is_dispatch(self):
        profile = profile_of(self.lane(op_us=60, kernel_us=20))
        call = profile.call
        assert (profile.mode, us(profile.input.wait_ns), us(call.total_ns)) == ("eager", 50, 950)
        assert (us(call.compute_ns), us(call.dispatch_ns)) == (80, 870)
        assert us(call.python_ns) == 950 - 4 * 60
        assert us(profile.other_ns) == 0
        assert [(op.name, op.count, us(op.self_ns)) for op in profile.ops.top] == [("MatMul", 16, 80)]
        assert profile.bottleneck.kind == "eager"
        assert profile_of(self.lane(op_us=200, kernel_us=190)).bottleneck.kind == "compute"


class TestXla:
    def lane(self, kind: str = "notTraced-xla", compile_us: float = 0) -> Space:
        def loop(n, at):
            marks = [marker(n, at), *calling(at, 900, n, kind), mark("fusion.3", at + 800, 40, hlo_op="fusion.3")]
            if compile_us and n == 0:
                name = "a_inference_step_12__XlaMustCompile_true"
                marks += [
                    mark("CpuCompiler::RunHloPasses", at + 20, 30),
                    mark("CpuCompiler::RunBackend", at + 50, compile_us, name=name),
                    mark("JitCompiler::Compile", at + 60, compile_us - 10),
                ]
            return marks

        def pool(n, at):
            return [mark("dot.12.1", at + 600, 100, hlo_op="dot.12.1")]

        return trace({"python": each_step(4, loop), "tf_numa_-1_Eigen/1": each_step(4, pool)})

    def test_its_operations_are_found_on_every_thread(self):
        profile = profile_of(self.lane())
        assert profile.mode == "xla"
        top = [(op.name, op.kind, op.count) for op in profile.ops.top]
        assert top == [("dot.12.1", "dot", 4), ("fusion.3", "fusion", 4)]
        assert (us(profile.call.compute_ns), us(profile.call.dispatch_ns)) == (140, 760)
        assert (profile.compiles, profile.retraced_steps) == ((), 0)

    def test_a_compilation_without_a_trace_counts_once_and_is_the_bottleneck(self):
        profile = profile_of(self.lane(compile_us=400))
        (one,) = profile.compiles
        assert (one.function, one.count, us(one.cost_ns), profile.retraces) == ("step", 1, 430, ())
        # The whole call without its operations, 900 - 140 µs, was for compiling.
        assert us(profile.call.compile_ns) == (900 - 140) / 4
        assert us(profile.call.dispatch_ns) == 3 * 760 / 4
        assert profile.bottleneck.kind == "retracing"
        assert profile.bottleneck.shares["retracing"] == pytest.approx(0.19)


def test_which_function_is_traced_again_how_often_and_at_what_cost():
    def loop(n, at):
        kind, building = ("notTraced-nonXla", []) if n % 2 else ("traced-nonXla", [mark(BUILDING, at + 110, 300)])
        return [marker(n, at), *waiting(at, 100), *calling(at + 100, 800, n + 1, kind), *building]

    ops = each_step(4, lambda n, at: processing(n + 1, [("a:MatMul", at + 700, 100)]))
    profile = profile_of(trace({"python": each_step(4, loop), "tf_Compute/1": ops}))
    (one,) = profile.retraces
    assert (one.function, one.count, us(one.cost_ns), profile.retraced_steps) == ("step", 2, 300, 2)
    assert (us(profile.call.tracing_ns), us(profile.call.dispatch_ns)) == (700 * 2 / 4, 700 * 2 / 4)
    assert profile.bottleneck.text == "retracing: 2 of 4 steps traced or compiled again"


def test_what_a_parallel_stage_started_is_its_work_and_waiting_for_it_is_none():
    root = "Iterator::Root::Prefetch::ParallelMapV2"
    data = [
        mark(root, 0, 900),
        mark("ParallelMapProduce", 910, 50),
        mark(f"{root}::BatchV2", 910, 20),
        mark("InstantiatedCapturedFunction::RunAsync", 940, 5, id=50),
    ]
    loop = each_step(2, lambda n, at: [marker(n, at), *waiting(at, 500), *calling(at + 600, 300, n + 1)])
    work = processing(50, [("PyFunc:PyFunc", 1000, 700)])
    lines = {"tf_data_iterator_resource/1": data, "tf_data_private_threadpool/1": work}
    profile = profile_of(trace({"python": loop, **lines}))
    found = [(stage.name, us(stage.busy_ns), stage.elements) for stage in profile.input.stages]
    assert found == [("ParallelMap", 350, 0.5), ("Batch", 10, 0.5)]
    assert us(profile.input.python_ns) == 350

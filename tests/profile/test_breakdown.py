"""Where the time of a step went, on traces in which it is known to the microsecond."""

import pytest
from made_lanes import (
    PERIOD,
    calling,
    each_step,
    graph_lane,
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

from tfmon.model.profile import Profile
from tfmon.model.readings import Missing
from tfmon.profile.breakdown import profile_of
from tfmon.profile.operations import tells
from tfmon.profile.trace import Space, TraceError


def bound(space_: Space) -> str:
    return profile_of(space_).bottleneck.kind


def loop_only(part, steps: int = 4) -> Space:
    return trace({"python": each_step(steps, part)})


class TestGraphOnTheCpu:
    def test_the_step_is_split_to_the_microsecond(self):
        profile = profile_of(graph_lane(input_us=100, call_us=800, op_us=700))
        call = profile.call
        assert (profile.steps, profile.mode) == (4, "graph")
        assert (us(profile.step_ns), us(profile.longest_ns)) == (1000, 1000)
        assert isinstance(profile.sync_ns, Missing), "on a CPU nobody waits for a device"
        assert (profile.devices, profile.host_only) == ((), False)
        assert (us(profile.input.wait_ns), us(call.total_ns), us(profile.other_ns)) == (100, 800, 100)
        assert (us(call.compute_ns), us(call.dispatch_ns), us(call.python_ns)) == (700, 100, 10)
        assert (call.tracing_ns, call.compile_ns) == (0, 0)

    def test_a_batch_that_the_compiled_step_takes_itself_is_waited_for(self):
        """`fit` of Keras 3: the function takes the batch, on a thread of the pipeline's."""
        taken, computed = "IteratorGetNextOp::DoCompute", ("dense/MatMul:MatMul", 750, 100)
        other = mark(taken, 0, 900, id=99)
        space = one_call([computed], **{"tf_data_get_next/1": [mark(taken, 50, 650, id=1)], "tf_data/2": [other]})
        profile = profile_of(space)
        assert (us(profile.input.wait_ns), us(profile.call.total_ns)) == (650, 250)
        assert (us(profile.call.compute_ns), profile.bottleneck.kind) == (100, "input")
        assert tells("tf_data_get_next/1", taken, ())

    @pytest.mark.parametrize(
        ("lane", "expected"),
        [
            (graph_lane(input_us=100, call_us=800, op_us=720), "compute"),
            (graph_lane(input_us=100, call_us=800, op_us=50), "dispatch"),
            (graph_lane(input_us=600, call_us=300, op_us=100), "input"),
            (graph_lane(input_us=430, call_us=500, op_us=450), "mixed"),
            (graph_lane(input_us=130, call_us=850, op_us=550), "mixed"),
            (graph_lane(input_us=100, call_us=200, op_us=100), "other"),
        ],
    )
    def test_what_limits_it(self, lane, expected):
        assert bound(lane) == expected

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

    def test_self_time_is_without_what_ran_inside_on_the_same_thread(self):
        ops = [("f/call:PartitionedCall", 100, 300), ("f/MatMul:MatMul", 150, 200), ("f/Inner:Pow", 160, 30)]
        found = {op.kind: us(op.self_ns) for op in profile_of(one_call(ops)).ops.top}
        assert found == {"PartitionedCall": 100, "MatMul": 170, "Pow": 30}

    @pytest.mark.parametrize(
        "name", ["ThreadpoolListener::Record", "end: copy.2", "MemoryAllocation", "a:b:c", ":Mul"]
    )
    def test_other_events_are_no_operations(self, name):
        assert profile_of(one_call([("a:Mul", 100, 10), (name, 200, 50)])).ops.runs == 1


class TestEager:
    def lane(self, op_us: float, kernel_us: float) -> Space:
        def part(n, at):
            ops = [one for index in range(4) for one in single("MatMul", at + 100 + 200 * index, op_us, kernel_us)]
            return [marker(n, at), *waiting(at, 50), *ops]

        return loop_only(part)

    def test_all_but_input_and_kernels_is_dispatch(self):
        profile = profile_of(self.lane(op_us=60, kernel_us=20))
        call = profile.call
        assert (profile.mode, us(profile.input.wait_ns), us(call.total_ns)) == ("eager", 50, 950)
        assert (us(call.compute_ns), us(call.dispatch_ns)) == (80, 870)
        assert us(call.python_ns) == 950 - 4 * 60
        assert us(profile.other_ns) == 0
        assert [(op.name, op.count, us(op.self_ns)) for op in profile.ops.top] == [("MatMul", 16, 80)]
        assert profile.bottleneck.kind == "eager"
        assert bound(self.lane(op_us=200, kernel_us=190)) == "compute"


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
        assert [(compile_.function, compile_.count, us(compile_.cost_ns)) for compile_ in profile.compiles] == [
            ("step", 1, 430)
        ]
        assert profile.retraces == ()
        # The whole call without its operations, 900 - 140 µs, was for compiling.
        assert us(profile.call.compile_ns) == (900 - 140) / 4
        assert us(profile.call.dispatch_ns) == 3 * 760 / 4
        assert profile.bottleneck.kind == "retracing"
        assert profile.bottleneck.shares["retracing"] == pytest.approx(0.19)


class TestRetracing:
    def lane(self, steps: int, traced: set[int]) -> Space:
        def part(n, at):
            kind = "traced-nonXla" if n in traced else "notTraced-nonXla"
            building = [mark("tf.function-graph_building", at + 110, 300)] if n in traced else []
            return [marker(n, at), *waiting(at, 100), *calling(at + 100, 800, n + 1, kind), *building]

        ops = each_step(steps, lambda n, at: processing(n + 1, [("a:MatMul", at + 700, 100)]))
        return trace({"python": each_step(steps, part), "tf_Compute/1": ops})

    def test_which_function_how_often_and_at_what_cost(self):
        profile = profile_of(self.lane(4, {0, 2}))
        assert [(retrace.function, retrace.count, us(retrace.cost_ns)) for retrace in profile.retraces] == [
            ("step", 2, 300)
        ]
        assert profile.retraced_steps == 2
        assert us(profile.call.tracing_ns) == 700 * 2 / 4
        assert us(profile.call.dispatch_ns) == 700 * 2 / 4
        assert profile.bottleneck.text == "retracing: 2 of 4 steps traced or compiled again"

    def test_one_in_twenty_steps_is_retracing_one_in_sixty_is_not(self):
        assert bound(self.lane(20, {5})) == "retracing"
        assert bound(self.lane(60, {5})) == "dispatch"


class TestStages:
    def profile(self, data, functions=()) -> Profile:
        loop = each_step(2, lambda n, at: [marker(n, at), *waiting(at, 500), *calling(at + 600, 300, n + 1)])
        return profile_of(
            trace({"python": loop, "tf_data_iterator_resource/1": data, "tf_data_private_threadpool/1": functions})
        )

    def test_a_stage_has_its_own_work_and_not_that_of_those_before_it(self):
        root = "Iterator::Root::Prefetch"
        data = each_step(
            2,
            lambda n, at: [
                mark("PrefetchProduce", at, 450),
                mark(f"{root}::Map", at, 440),
                mark(f"{root}::Map::BatchV2", at + 10, 100),
                mark(f"{root}::Map::BatchV2::ForeverRepeat[0]::TensorSlice", at + 20, 30),
                mark(f"{root}::Map::BatchV2::ForeverRepeat[0]::TensorSlice", at + 60, 30),
            ],
        )
        found = [(stage.name, us(stage.busy_ns), stage.elements) for stage in self.profile(data).input.stages]
        assert found == [("Map", 340, 1), ("TensorSlice", 60, 2), ("Batch", 40, 1)]

    def test_what_a_parallel_stage_started_is_its_work_and_waiting_for_it_is_none(self):
        root = "Iterator::Root::Prefetch::ParallelMapV2"
        data = [
            mark(root, 0, 900),
            mark("ParallelMapProduce", 910, 50),
            mark(f"{root}::BatchV2", 910, 20),
            mark("InstantiatedCapturedFunction::RunAsync", 940, 5, id=50),
        ]
        work = processing(50, [("PyFunc:PyFunc", 1000, 700)])
        profile = self.profile(data, work)
        found = [(stage.name, us(stage.busy_ns), stage.elements) for stage in profile.input.stages]
        assert found == [("ParallelMap", 350, 0.5), ("Batch", 10, 0.5)]
        assert us(profile.input.python_ns) == 350

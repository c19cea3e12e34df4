"""Where the time of a step went, on traces in which it is known to the microsecond."""

from __future__ import annotations

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

    def test_operations_count_whose_thread_was_still_at_work_when_the_capture_ended(self):
        """An event is recorded when it ends: the last `ExecutorState::Process` of a thread may be missing."""
        steps, op = 3, ("net/dense/MatMul:MatMul", 150, 700)
        loop = each_step(steps, lambda n, at: [marker(n, at), *calling(at + 100, 800, n + 1)])
        ops = each_step(steps, lambda n, at: processing(n + 1, [(op[0], at + op[1], op[2])]))
        cut = [one for one in ops if one.name != "ExecutorState::Process" or one.stats["id"] < steps]
        assert len(cut) == len(ops) - 1
        other = [mark("map/Cast:Cast", 2 * PERIOD + 300, 400), mark(op[0], 2 * PERIOD + 20, 50)]
        profile = profile_of(trace({"python": loop, "tf_Compute/1": cut, "tf_Compute/2": other}), parts=True)
        (ran,) = [part for part in profile.parts if part.runs]
        assert (us(profile.call.compute_ns), us(ran.step_ns), ran.runs) == (700, 700, 1)

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

    def test_time_between_the_steps_belongs_to_the_capture(self):
        profile = profile_of(loop_only(lambda n, at: [marker(n, at, 600), *calling(at, 500, n)]))
        assert (us(profile.step_ns), us(profile.longest_ns)) == ((3 * PERIOD + 600) / 4, 600)
        assert us(profile.other_ns) == (4 * 100 + 3 * 400) / 4

    def test_what_ran_before_and_after_the_capture_does_not_count(self):
        inside = each_step(2, lambda n, at: [marker(n, at + PERIOD), *calling(at + PERIOD, 800, n)])
        profile = profile_of(trace({"python": [*waiting(0, 900), *inside, *calling(3 * PERIOD, 900, 9)]}))
        assert isinstance(profile.input.wait_ns, Missing)
        assert us(profile.call.total_ns) == 800

    def test_the_loop_is_found_by_its_markers_whatever_its_thread_is_called(self):
        loop = each_step(2, lambda n, at: [marker(n, at), *calling(at, 500, n)])
        assert profile_of(trace({"python": [mark("x", 0, 5)], "python3 (7)": loop})).steps == 2

    def test_without_a_marked_step_there_is_no_profile(self):
        with pytest.raises(TraceError, match="no step marked 'train'"):
            profile_of(trace({"python": [mark("train", 0, 5), *calling(0, 50, 1)]}))
        with pytest.raises(TraceError, match="no step marked"):
            profile_of(space(plane("/host:metadata", {})))

    def test_steps_in_which_nothing_is_seen_have_no_bottleneck(self):
        profile = profile_of(loop_only(lambda n, at: [marker(n, at)]))
        assert profile.mode == "unknown"
        assert isinstance(profile.call, Missing) and isinstance(profile.bottleneck, Missing)
        assert isinstance(profile.ops, Missing) and isinstance(profile.input.wait_ns, Missing)
        assert us(profile.other_ns) == PERIOD

    def test_what_the_profiler_complained_of_is_noted(self):
        loop = each_step(1, lambda n, at: [marker(n, at)])
        assert "CUPTI" in profile_of(trace({"python": loop}, errors=["CUPTI: no permission"])).notes[0]


class TestOperations:
    def test_only_those_of_the_functions_that_the_loop_called_are_the_steps(self):
        loop = each_step(2, lambda n, at: [marker(n, at), *waiting(at, 100), *calling(at + 100, 500, n + 1)])
        step = each_step(2, lambda n, at: processing(n + 1, [("a/MatMul:MatMul", at + 200, 50)]))
        data = each_step(2, lambda n, at: processing(n + 77, [("PyFunc:PyFunc", at + 100, 400)]))
        profile = profile_of(trace({"python": loop, "tf_Compute/1": step, "tf_data_private_threadpool/1": data}))
        assert [op.kind for op in profile.ops.top] == ["MatMul"]
        assert (us(profile.call.compute_ns), us(profile.input.python_ns)) == (50, 400)

    def test_a_function_that_the_pipeline_runs_on_the_loops_thread_is_none_of_the_steps(self):
        run = mark("FunctionRun", 20, 5, id=77)
        loop = [marker(0, 0), *waiting(0, 300), run, *calling(400, 500, 1)]
        work = [*processing(77, [("map/Mul:Mul", 30, 200)]), *processing(1, [("a:Add", 500, 10)])]
        assert [op.name for op in profile_of(trace({"python": loop, "tf_Compute/1": work})).ops.top] == ["a"]

    def test_python_in_the_step_is_none_of_the_pipelines(self):
        profile = profile_of(one_call([("net/PyFunc:PyFunc", 100, 400)]))
        assert [op.kind for op in profile.ops.top] == ["PyFunc"]
        assert isinstance(profile.input.python_ns, Missing)

    def test_functions_called_by_the_steps_functions_are_the_steps(self):
        loop = [marker(0, 0), *calling(0, 900, 1)]
        outer = [*processing(1, [("loop:While", 100, 500)]), mark("FunctionRun", 110, 5, id=2)]
        middle = [*processing(2, [("body/call:PartitionedCall", 120, 300)]), mark("FunctionRun", 130, 5, id=3)]
        inner = processing(3, [("body/MatMul:MatMul", 150, 90)])
        lines = {"python": loop, "tf_Compute/1": outer, "tf_Compute/2": middle, "tf_Compute/3": inner}
        assert {op.kind for op in profile_of(trace(lines)).ops.top} == {"While", "PartitionedCall", "MatMul"}

    def test_self_time_is_without_what_ran_inside_on_the_same_thread(self):
        ops = [("f/call:PartitionedCall", 100, 300), ("f/MatMul:MatMul", 150, 200), ("f/Inner:Pow", 160, 30)]
        found = {op.kind: us(op.self_ns) for op in profile_of(one_call(ops)).ops.top}
        assert found == {"PartitionedCall": 100, "MatMul": 170, "Pow": 30}

    def test_parallelism_is_their_time_over_the_time_in_which_any_ran(self):
        second = {"tf_Compute/2": processing(1, [("b:MatMul", 200, 300)])}
        ops = profile_of(one_call([("a:MatMul", 100, 300)], **second)).ops
        assert (us(ops.time_ns), us(ops.busy_ns), ops.parallelism) == (600, 400, pytest.approx(1.5))

    def test_the_ten_that_took_most_come_first_with_their_runs(self):
        took_us = {f"layer{index}/MatMul": 10 * index for index in range(1, 13)}
        threads = {
            f"tf_Compute/{name}": each_step(
                3, lambda n, at, name=name: processing(n + 1, [(f"{name}:MatMul", at + 100, took_us[name])])
            )
            for name in took_us
        }
        loop = each_step(3, lambda n, at: [marker(n, at), *calling(at, 900, n + 1)])
        ops = profile_of(trace({"python": loop, **threads})).ops
        assert [op.name for op in ops.top] == [f"layer{index}/MatMul" for index in range(12, 2, -1)]
        assert (ops.top[0].count, us(ops.top[0].self_ns), ops.top[0].device) == (3, 120, "CPU")
        assert ops.top[0].share == pytest.approx(120 / sum(took_us.values()))
        assert ops.runs == 36

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

    def test_a_function_called_by_an_eager_step_counts_by_its_operations(self):
        loop = [
            marker(0, 0),
            *(one for k in range(4) for one in single("Mul", 100 * k, 80, 10)),
            *calling(500, 90, 1),
        ]
        work = processing(1, [("a/MatMul:MatMul", 540, 30)])
        profile = profile_of(trace({"python": loop, "tf_Compute/1": work}))
        assert profile.mode == "eager"
        assert {op.kind: us(op.self_ns) for op in profile.ops.top} == {"Mul": 40, "MatMul": 30}

    def test_a_few_single_operations_beside_a_tf_function_do_not_make_it_eager(self):
        profile = profile_of(
            loop_only(
                lambda n, at: [marker(n, at), *single("StridedSlice", at, 50, 5), *calling(at + 100, 800, n)]
            )
        )
        assert profile.mode == "graph"
        assert us(profile.call.total_ns) == 800


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
        assert [(op.name, op.kind, op.count) for op in profile.ops.top] == [
            ("dot.12.1", "dot", 4),
            ("fusion.3", "fusion", 4),
        ]
        assert (us(profile.call.compute_ns), us(profile.call.dispatch_ns)) == (140, 760)
        assert (profile.compiles, profile.retraced_steps) == ((), 0)

    def test_a_compilation_without_a_trace_counts_once_and_is_the_bottleneck(self):
        profile = profile_of(self.lane(compile_us=400))
        assert [(one.function, one.count, us(one.cost_ns)) for one in profile.compiles] == [("step", 1, 430)]
        assert profile.retraces == ()
        # The whole call was for compiling, but for its operations of 140.
        assert us(profile.call.compile_ns) == (900 - 140) / 4
        assert us(profile.call.dispatch_ns) == 3 * 760 / 4
        assert profile.bottleneck.kind == "retracing"
        assert profile.bottleneck.shares["retracing"] == pytest.approx(0.19)

    def test_operations_outside_of_the_step_are_not_its(self):
        loop = [marker(0, 0), *calling(0, 500, 1, "notTraced-xla"), mark("dot.1", 700, 50, hlo_op="dot.1")]
        assert isinstance(profile_of(trace({"python": loop})).ops, Missing)


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
        assert [(one.function, one.count, us(one.cost_ns)) for one in profile.retraces] == [("step", 2, 300)]
        assert profile.retraced_steps == 2
        assert us(profile.call.tracing_ns) == 700 * 2 / 4
        assert us(profile.call.dispatch_ns) == 700 * 2 / 4
        assert profile.bottleneck.text == "retracing: 2 of 4 steps traced or compiled again"

    def test_one_in_twenty_steps_is_retracing_one_in_sixty_is_not(self):
        assert bound(self.lane(20, {5})) == "retracing"
        assert bound(self.lane(60, {5})) == "dispatch"

    def test_a_function_traced_while_another_one_is_built_is_part_of_that(self):
        marks = [
            marker(0, 0),
            *calling(0, 900, 1, "traced-nonXla"),
            mark("tf.function-graph_building", 10, 500),
            mark("inner", 50, 200, tf_function_call="traced-nonXla"),
            mark("tf.function-graph_building", 60, 150),
        ]
        profile = profile_of(trace({"python": marks}))
        assert [(one.function, one.count, us(one.cost_ns)) for one in profile.retraces] == [("step", 1, 500)]

    def test_each_function_is_counted_for_itself(self):
        marks = [
            marker(0, 0),
            *calling(0, 400, 1, "traced-nonXla"),
            mark("tf.function-graph_building", 10, 100),
            mark("validate", 500, 300, tf_function_call="traced-nonXla"),
            mark("tf.function-graph_building", 510, 200),
        ]
        retraces = profile_of(trace({"python": marks})).retraces
        assert [(one.function, one.count, us(one.cost_ns)) for one in retraces] == [
            ("step", 1, 100),
            ("validate", 1, 200),
        ]

    def test_a_cost_that_the_trace_does_not_tell_is_missing(self):
        profile = profile_of(trace({"python": [marker(0, 0), *calling(0, 900, 1, "traced-nonXla")]}))
        assert isinstance(profile.retraces[0].cost_ns, Missing)


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

    def test_a_stage_is_one_however_often_the_data_were_begun_anew(self):
        root = "Iterator::Root::BatchV2::ForeverRepeat"
        data = each_step(2, lambda n, at: [mark(f"{root}[{n}]::Map", at, 100)])
        found = [(stage.name, us(stage.busy_ns), stage.elements) for stage in self.profile(data).input.stages]
        assert found == [("Map", 100, 1)]

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

    @pytest.mark.parametrize(
        ("names", "wanted"),
        [
            ((), False),
            (("InstantiatedCapturedFunction::RunAsync",), True),
            (("PyFunc:PyFunc",), True),
            (("map/Mul:Mul",), False),
        ],
    )
    def test_the_executor_is_read_only_where_it_tells_something(self, names, wanted):
        names = {"ExecutorState::Process", "Iterator::Root", *names}
        assert tells("tf_data_private_threadpool/1", "ExecutorState::Process", names) is wanted
        assert tells("tf_data_private_threadpool/1", "Iterator::Root", names)
        assert tells("tf_Compute/1", "ExecutorState::Process", names)
        assert not tells("tf_data_private_threadpool/1", "map/Mul:Mul", names)

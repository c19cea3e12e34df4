"""Synthetic traces of lanes, built as TensorFlow's profiler records them. Times are in microseconds."""

# This folder is not a package: a package named `profile` would hide the standard library's, which cProfile loads.

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tfmon.model.readings import Missing, Reading
from tfmon.profile.trace import Plane, Space, TraceEvent, TraceLine

PERIOD = 1000
"""Time between the beginnings of two steps, in µs."""


@dataclass(frozen=True)
class Mark:
    name: str
    start_us: float
    length_us: float
    stats: dict = field(default_factory=dict)


Marks = list[Mark]


def mark(name: str, start_us: float, length_us: float, /, **stats) -> Mark:
    return Mark(name, start_us, length_us, stats)


def plane(name: str, lines: dict[str, Iterable[Mark]]) -> Plane:
    def event(one: Mark) -> TraceEvent:
        start_ps = round(one.start_us * 1e6)
        return TraceEvent(start_ps, start_ps + round(one.length_us * 1e6), one.name, one.stats)

    def ordered(marks: Iterable[Mark]) -> tuple[TraceEvent, ...]:
        return tuple(sorted(map(event, marks), key=lambda one: (one[0], -one[1])))

    return Plane(name, tuple(TraceLine(title, ordered(marks)) for title, marks in lines.items()))


def space(*planes: Plane, errors: Iterable[str] = ()) -> Space:
    events = sum(len(line.events) for one in planes for line in one.lines)
    return Space(planes, events, tuple(errors))


def us(value: Reading) -> float:
    """Return a time in microseconds; fail if it is missing."""
    assert not isinstance(value, Missing), value.reason
    return round(value / 1000, 6)


def trace(lines: dict[str, Iterable[Mark]], *devices: Plane, errors: Iterable[str] = ()) -> Space:
    return space(plane("/host:CPU", lines), *devices, plane("Task Environment", {}), errors=errors)


def gpu(lines: dict[str, Iterable[Mark]], index: int = 0) -> Plane:
    return plane(f"/device:GPU:{index}", lines)


def each_step(steps: int, part: Callable[[int, int], Marks]) -> Marks:
    """Collect the events of all steps; `part` gets a step's number and its beginning."""
    return [one for number in range(steps) for one in part(number, number * PERIOD)]


def marker(number: int, at: float, length: float = PERIOD) -> Mark:
    return mark("train", at, length, step_num=number, _r=1)


def waiting(at: float, length: float) -> Marks:
    """The loop takes a batch."""
    return [
        mark("TFE_Py_FastPathExecute_C", at, length),
        mark("EagerExecute", at, length, eager_op="IteratorGetNext"),
        mark("EagerLocalExecute: IteratorGetNext", at, length),
        mark("KernelAndDeviceFunc::Run", at, length),
        mark("IteratorGetNextOp::DoCompute", at, length, id=-5),
        mark("Iterator::Root", at, length),
        mark("Iterator::Root::Prefetch", at, length),
    ]


def calling(at: float, length: float, run: int, kind: str = "notTraced-nonXla", binding: float = 10) -> Marks:
    """The loop calls a tf.function; the executor knows the call by `run`."""
    start = at + binding
    return [
        mark("step", at, length, tf_function_call=kind, tracing_count=1),
        mark("TFE_Py_ExecuteCancelable", start, length - binding),
        mark("EagerExecute", start, length - binding),
        mark("EagerLocalExecute: __inference_step_12", start, length - binding),
        mark("KernelAndDeviceFunc::Run", start, length - binding),
        mark("FunctionRun", start, 5, id=run),
    ]


def processing(run: int, ops: Iterable[tuple[str, float, float]]) -> Marks:
    """An executor's thread works on a function."""
    found = [mark(name, start, length) for name, start, length in ops]
    start = min(one.start_us for one in found)
    end = max(one.start_us + one.length_us for one in found)
    return [mark("ExecutorState::Process", start, end - start, id=run, iter_num=0), *found]


def single(name: str, at: float, length: float, kernel: float) -> Marks:
    """One operation in eager execution, whose kernel runs at its end."""
    return [
        mark("TFE_Py_FastPathExecute_C", at, length),
        mark("EagerExecute", at, length, eager_op=name),
        mark(f"EagerLocalExecute: {name}", at, length),
        mark("KernelAndDeviceFunc::Run", at + length - kernel, kernel),
    ]


def one_call(ops: Iterable[tuple[str, float, float]], **lines: Marks) -> Space:
    """One step of 900 µs in a function that runs these operations; `lines` are of other threads."""
    return trace({"python": [marker(0, 0), *calling(0, 900, 1)], "tf_Compute/1": processing(1, ops), **lines})


def graph_lane(input_us: float = 100, call_us: float = 800, op_us: float = 700, steps: int = 4) -> Space:
    """A lane on the CPU: it waits, then calls a function of which one MatMul is all that is computed."""
    loop = each_step(
        steps,
        lambda number, at: [
            marker(number, at),
            *waiting(at, input_us),
            *calling(at + input_us, call_us, number + 1),
        ],
    )
    ops = each_step(
        steps, lambda number, at: processing(number + 1, [("net/dense/MatMul:MatMul", at + input_us + 50, op_us)])
    )
    return trace({"python": loop, "tf_Compute/1": ops})


def gpu_lane(
    loop_part: Callable[[int, int], Marks], queues: dict[str, Callable[[int, int], Marks]], steps: int = 4
) -> Space:
    """A lane on a GPU; each part gets a step's number and its beginning."""
    lines = {name: each_step(steps, part) for name, part in queues.items()}
    return trace({"python": each_step(steps, loop_part)}, gpu(lines))

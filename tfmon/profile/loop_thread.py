"""The thread that trains, and its steps."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from tfmon.model.fast_dataclass import dataclass
from tfmon.profile.trace import CALL, Interval, Space, Times, TraceError, TraceEvent, TraceLine

STEP_STAT = "step_num"
CALL_STAT = "tf_function_call"
BUILDING = "tf.function-graph_building"
EAGER = "EagerLocalExecute: "
HOST = "/host:CPU"

TAKES_BATCH, RUN = "IteratorGetNextOp::DoCompute", "FunctionRun"
_INPUT = (TAKES_BATCH, f"{EAGER}IteratorGetNext")
_RUNTIME = ("TFE_Py_ExecuteCancelable", "TFE_Py_Execute", "TFE_Py_FastPathExecute_C")
_SINGLE = ("EagerExecute", *_RUNTIME)
_AWAITS_XLA = "BlockUntilReady"
_JAX = "PjitFunction("
_COMPILE = re.compile(r"\w*Compiler::(Compile\w*|Run\w*)|HLO Transforms:.*|XlaCompile.*")
_FUNCTION = re.compile(r"_inference_(.+?)_\d+(?![^_\W])")


@dataclass(frozen=True, slots=True)
class FunctionBuild:
    """A call in which a function was traced, or compiled by XLA."""

    function: str
    span: Interval
    cost_ps: int
    """0 if not in the trace."""


@dataclass(frozen=True, slots=True)
class LoopThread:
    """The thread that trains."""

    line: TraceLine
    steps: tuple[Interval, ...]
    window: Times
    input: Times
    calls: Times
    """Marked calls, or tf.functions if unmarked, or all except the input if `eager`."""
    eager: bool
    known: bool
    xla: bool
    runtime: Times
    awaits_xla: Times
    """Waits for XLA's threads, which do not name operations."""
    traced: Times
    tracings: tuple[FunctionBuild, ...]
    compilings: tuple[FunctionBuild, ...]

    @property
    def compiled(self) -> Times:
        """Calls in which XLA compiled."""
        return self.calls & Times(compiling.span for compiling in self.compilings)

    def per_step(self, times: Times) -> float:
        """Return the mean time of a step in ns."""
        return times.total / 1000 / len(self.steps)


def find(space: Space, marker: str, until_ps: int = 0) -> LoopThread:
    """Return the thread with the step markers; raises TraceError."""
    line, marks = _marked(space, marker)
    window = Times([(marks[0].start_ps, max(until_ps, *(mark.end_ps for mark in marks)))])
    if not window:
        raise TraceError("the profile is damaged: its steps took no time")

    def times(wanted: Callable[[TraceEvent], bool]) -> Times:
        return Times(event.span for event in line.events if wanted(event)) & window

    marked = [event for event in line.events if event.name == CALL]
    waits = _before(marks, marked) if marked else times(lambda event: event.name in _INPUT)
    if not waits:
        called = {event.stats.get("id") for event in line.events if event.name == RUN}
        taken = (event for line in host_lines(space) for event in line.events if event.name == TAKES_BATCH)
        waits = Times(event.span for event in taken if event.stats.get("id") in called) & window
    # On the CPU, JAX may continue on other threads.
    jax = bool(until_ps) and any(event.name.startswith(_JAX) for event in line.events)
    calls = times(lambda event: CALL_STAT in event.stats or (jax and event.name.startswith(_JAX))) - waits
    single = times(lambda event: event.name in _SINGLE) - waits - calls
    eager = single.total > calls.total
    known = bool(calls) or bool(single)
    if marked:
        calls = Times(call.span for call in marked) & window
    elif eager:
        calls = Times(mark.span for mark in marks) - waits
    inside = _lying_in(list(line.events), *window[0])
    tracings = tuple(_tracings(inside))
    return LoopThread(
        line=line,
        steps=tuple(mark.span for mark in marks),
        window=window,
        input=waits,
        calls=calls,
        eager=eager,
        known=known,
        xla=jax or any(str(event.stats.get(CALL_STAT, "")).endswith("-xla") for event in line.events),
        runtime=times(lambda event: event.name in _RUNTIME) & calls,
        awaits_xla=times(lambda event: event.name == _AWAITS_XLA) & calls,
        traced=Times(tracing.span for tracing in tracings) & calls,
        tracings=tracings,
        compilings=tuple(_compilings(inside)),
    )


def _before(steps: list[TraceEvent], calls: list[TraceEvent]) -> Times:
    firsts = ((step.start_ps, _lying_in(calls, *step.span)[:1]) for step in steps)
    return Times((start, call.start_ps) for start, result in firsts for call in result)


def host_lines(space: Space) -> list[TraceLine]:
    """Return the threads of the process."""
    return [line for plane in space.planes if plane.name.startswith(HOST) for line in plane.lines]


def _marked(space: Space, marker: str) -> tuple[TraceLine, list[TraceEvent]]:
    marked = []
    for line in host_lines(space):
        numbered = [event for event in line.events if STEP_STAT in event.stats]
        names = [marker] if marker else list(Counter(event.name for event in numbered))
        marked += [(line, [event for event in numbered if event.name == name]) for name in names]
    best = max(marked, key=lambda candidate: len(candidate[1]), default=None)
    if best is None or not best[1]:
        raise TraceError(
            f"the profile has no step marked {marker!r}" if marker else "the profile has no marked step",
            "each step must run inside tf.profiler.experimental.Trace",
        )
    return best


def outermost(events: Iterable[TraceEvent]) -> list[TraceEvent]:
    """Return the events that lie in no other event."""
    result: list[TraceEvent] = []
    for event in events:
        if not result or event.start_ps >= result[-1].end_ps:
            result.append(event)
    return result


def _lying_in(events: list[TraceEvent], start_ps: int, end_ps: int) -> list[TraceEvent]:
    first = bisect_left(events, (start_ps,))
    return events[first : bisect_left(events, (end_ps,), lo=first)]


def _tracings(events: list[TraceEvent]) -> Iterator[FunctionBuild]:
    """A function traced during another tracing is part of it."""
    building = outermost(event for event in events if event.name == BUILDING)
    for call in outermost(event for event in events if str(event.stats.get(CALL_STAT, "")).startswith("traced")):
        cost_ps = sum(event.end_ps - event.start_ps for event in _lying_in(building, *call.span))
        yield FunctionBuild(call.name, call.span, cost_ps)


def _compilings(events: list[TraceEvent]) -> Iterator[FunctionBuild]:
    """All work of XLA in one call is one compilation."""
    result = outermost(event for event in events if _COMPILE.fullmatch(event.name))
    if not result:
        return
    seen: set[int] = set()
    for call in outermost(event for event in events if CALL_STAT in event.stats or event.name.startswith(_JAX)):
        if inside := _lying_in(result, *call.span):
            seen.update(event.start_ps for event in inside)
            function = call.name.removeprefix(_JAX).removesuffix(")")
            yield FunctionBuild(function, call.span, Times(event.span for event in inside).total)
    for step in result:
        if step.start_ps not in seen:
            match = _FUNCTION.search(f"{step.name} {step.stats.get('name', '')}")
            name = (match[1] if match else "") or "a function"
            yield FunctionBuild(name, step.span, step.end_ps - step.start_ps)

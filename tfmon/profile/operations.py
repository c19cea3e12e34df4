"""The operations of the step, and the stages of the input pipeline."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import field
from functools import lru_cache
from typing import TypeAlias

from tfmon.model.fast_dataclass import dataclass
from tfmon.model.profile import Stage
from tfmon.profile.loop_thread import EAGER, RUN, TAKES_BATCH, LoopThread
from tfmon.profile.trace import ALLOCATION, DEALLOCATION, PIPELINE, Interval, Stat, Times, TraceEvent, TraceLine

Function: TypeAlias = Stat | None
"""The executor's number of one call."""

CPU = "CPU"
PYTHON = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
PROCESS = "ExecutorState::Process"
_CUT = "unknown: the thread's ExecutorState::Process was still open when the capture ended, so it was not recorded"
_KERNEL, _HLO = "KernelAndDeviceFunc::Run", "hlo_op"
_NOT_SINGLE = (f"{EAGER}IteratorGetNext", f"{EAGER}__inference_", f"{EAGER}__forward_", f"{EAGER}__backward_")
_OP = re.compile(r"([A-Za-z0-9.][\w.\-/>]*):(_?[A-Za-z]\w*)")
_NUMBER = re.compile(r"(\.\d+)+$")


@dataclass(slots=True)
class OpRun:
    """One run of an operation."""

    name: str
    type: str
    device: str
    start_ps: int
    end_ps: int
    self_ps: int
    """Excludes inner operations on the same thread."""
    thread: Hashable = None
    layer: int = 0
    """A lower layer hides it, see `parts`."""
    bytes: int | None = None
    """The size of a copy, if known."""

    @property
    def span(self) -> Interval:
        """Start and end."""
        return self.start_ps, self.end_ps


@dataclass(slots=True)
class Executed:
    """The work of the CPU."""

    runs: list[tuple[Function, OpRun]] = field(default_factory=list)
    step: list[OpRun] = field(default_factory=list)
    python_ps: int | None = None
    """Python functions outside of the step, in the input pipeline."""
    roots: set[Function] = field(default_factory=set)
    """Functions that the loop calls."""
    callees: dict[Function, set[Function]] = field(default_factory=dict)
    functions: dict[Function, int] = field(default_factory=dict)


def executed(lines: Iterable[TraceLine], loop: LoopThread) -> Executed:
    """Return the operations of these threads.

    The loop called the step's functions, directly or indirectly. An operation of an unknown function belongs to
    the step if the step has its name and type.
    """
    result = Executed()
    starts = [start for start, _ in loop.calls]
    for line in lines:
        _read(line, loop, starts, result)
    step, fresh = set(result.roots), result.roots
    while fresh:
        fresh = {callee for caller in fresh for callee in result.callees.get(caller, ())} - step
        step |= fresh
    known = {(run.name, run.type) for function, run in result.runs if function in step}
    inside = []
    for function, run in result.runs:
        if function in step or (function == _CUT and (run.name, run.type) in known):
            inside.append(run)
        elif run.type in PYTHON:
            result.python_ps = (result.python_ps or 0) + run.end_ps - run.start_ps
    result.step[:0] = inside
    return result


def _read(line: TraceLine, loop: LoopThread, starts: list[int], executed: Executed) -> None:
    is_loop = line is loop.line
    began, ended = loop.window[0]
    processes: list[TraceEvent] = []
    singles: list[TraceEvent] = []
    runs: list[OpRun] = []

    def add(event: TraceEvent, name: str, kind: str) -> OpRun:
        """Subtract a run from the self time of the outer run."""
        span = event.end_ps - event.start_ps
        while runs and runs[-1].end_ps <= event.start_ps:
            runs.pop()
        if runs:
            runs[-1].self_ps = max(0, runs[-1].self_ps - span)
        runs.append(OpRun(name, kind, CPU, event.start_ps, event.end_ps, span, id(line)))
        return runs[-1]

    for event in line.events:
        start, end, name, stats = event
        if end <= began or start >= ended:
            continue
        while processes and processes[-1].end_ps <= start:
            processes.pop()
        if name == PROCESS:
            processes.append(event)
            function = stats.get("id")
            executed.functions[function] = executed.functions.get(function, 0) + end - start
        elif name == RUN:
            if processes:
                executed.callees.setdefault(processes[-1].stats.get("id"), set()).add(stats.get("id"))
            elif is_loop and _holds(loop.calls, starts, start):
                executed.roots.add(stats.get("id"))
        elif _HLO in stats:
            if _holds(loop.calls, starts, start) or not loop.known:  # a trace of JAX has no call of TensorFlow
                hlo = str(stats[_HLO])
                executed.step.append(add(event, hlo, hlo_type(hlo)))
        elif (processes or _holds(loop.calls, starts, start)) and (operation := parse(name)) is not None:
            executed.runs.append((processes[-1].stats.get("id") if processes else _CUT, add(event, *operation)))
        elif is_loop and loop.eager and not processes:
            if name.startswith(EAGER):
                singles.append(event)
            elif name == _KERNEL and singles and end <= singles[-1].end_ps:
                single = singles[-1].name
                if not single.startswith(_NOT_SINGLE) and _holds(loop.calls, starts, start):
                    kind = single.removeprefix(EAGER)
                    executed.step.append(add(event, kind, kind))


def _holds(times: Times, starts: list[int], at_ps: int) -> bool:
    index = bisect_right(starts, at_ps) - 1
    return index >= 0 and at_ps < times[index][1]


@lru_cache(maxsize=4096)
def parse(name: str) -> tuple[str, str] | None:
    """Return the name and type of an operation from an event's name."""
    match = _OP.fullmatch(name)
    return (match[1], match[2]) if match else None


def hlo_type(name: str) -> str:
    """Return the type of XLA's operation: fusion.12 is a fusion."""
    return _NUMBER.sub("", name)


_ITERATOR, RUN_ASYNC = "Iterator::", "InstantiatedCapturedFunction::RunAsync"
"""The second name: a stage starts a function."""
_WAITS = re.compile(r"Prefetch|Parallel|MapAndBatch|Root$")
"""These stages wait for the results of other threads."""
_PLAIN = re.compile(r"V\d+$")
"""A stage is called Batch for Iterator::Root::BatchV2."""
_ROUND = re.compile(r"\[\d+\]")
"""Counts the iterators of a stage such as repeat."""


def tells(line: str, event: str, names: Collection[str]) -> bool:
    """Accept events of stages and memory, and of the stages' executor."""
    if not line.startswith(PIPELINE) or event.startswith(_ITERATOR) or _is_python(event):
        return True
    runs = event in (PROCESS, RUN) and (RUN_ASYNC in names or any(map(_is_python, names)))
    return runs or event in (RUN_ASYNC, TAKES_BATCH, ALLOCATION, DEALLOCATION)


def _is_python(event: str) -> bool:
    return event.rpartition(":")[2] in PYTHON


def stages(
    lines: Iterable[TraceLine], window: Interval, functions: Mapping[Stat | None, int], steps: int
) -> tuple[Stage, ...]:
    """Return the stages, the busiest first."""
    self_ps: Counter[str] = Counter()
    elements: Counter[str] = Counter()
    for line in lines:
        for path, spent_ps, count in _read_stages(line, window, functions):
            self_ps[_ROUND.sub("", path)] += spent_ps
            elements[_ROUND.sub("", path)] += count
    result = [
        Stage(_PLAIN.sub("", path.rpartition("::")[2]), spent_ps / 1000 / steps, elements[path] / steps)
        for path, spent_ps in self_ps.items()
        if spent_ps > 0
    ]
    return tuple(sorted(result, key=lambda stage: (-stage.busy_ns, stage.name)))


def _read_stages(
    line: TraceLine, window: Interval, functions: Mapping[Stat | None, int]
) -> Iterator[tuple[str, int, int]]:
    """Yield the path of a stage, its time in ps, and its number of elements."""
    stack: list[TraceEvent] = []
    latest = ""
    for event in line.events:
        if event.end_ps <= window[0] or event.start_ps >= window[1]:
            continue
        if event.name == RUN_ASYNC:
            while stack and stack[-1].end_ps <= event.start_ps:
                stack.pop()
            # A parallel stage first takes an element, then starts its function.
            path = stack[-1].name if stack else latest.rpartition("::")[0]
            spent = functions.get(event.stats.get("id"))
            if path and spent is not None:
                yield path, spent, 1
            continue
        if not event.name.startswith(_ITERATOR):
            continue
        while stack and stack[-1].end_ps <= event.start_ps:
            stack.pop()
        span = min(event.end_ps, window[1]) - max(event.start_ps, window[0])
        if stack and not _waits(stack[-1].name):
            yield stack[-1].name, -span, 0
        if not stack:
            latest = event.name
        stack.append(event)
        if not _waits(event.name):
            yield event.name, span, 1


def _waits(path: str) -> bool:
    return _WAITS.match(path.rpartition("::")[2]) is not None

"""The stages of the input pipeline, and how much work each of them had."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tfmon.profile.operations import PROCESS, PYTHON, RUN
from tfmon.profile.result import Stage
from tfmon.profile.trace import PIPELINE, Interval, Line, Stat, TraceEvent

_ITERATOR, _RUN_ASYNC = "Iterator::", "InstantiatedCapturedFunction::RunAsync"
_WAITS = re.compile(r"Prefetch|Parallel|MapAndBatch|Root$")
"""Stages that hand on what other threads make: time in them is waiting; their work is seen there."""
_PLAIN = re.compile(r"V\d+$")
_ROUND = re.compile(r"\[\d+\]")
"""Counts the iterators that a stage such as a repeat made for the one before it."""


def tells(line: str, event: str, names: Collection[str]) -> bool:
    """Want of the pipeline's own threads what tells of its stages; the operations in its functions do not.

    The executor does where a stage only starts its functions, or a function calls Python. It is most of a trace.
    """
    if not line.startswith(PIPELINE) or event.startswith(_ITERATOR) or event == _RUN_ASYNC or _is_python(event):
        return True
    return event in (PROCESS, RUN) and (_RUN_ASYNC in names or any(map(_is_python, names)))


def _is_python(event: str) -> bool:
    return event.rpartition(":")[2] in PYTHON


@dataclass(slots=True)
class _Work:
    self_ps: int = 0
    elements: int = 0


def stages(
    lines: Iterable[Line], window: Interval, functions: Mapping[Stat | None, int], steps: int
) -> tuple[Stage, ...]:
    """Return the stages, the busiest first.

    `functions` tells how long the executor worked on a call of a function: a parallel stage only starts them.
    """
    work: dict[str, _Work] = {}
    for line in lines:
        _read(line, window, functions, work)
    together: dict[str, _Work] = {}
    for path, one in work.items():
        stage = together.setdefault(_ROUND.sub("", path), _Work())
        stage.self_ps += one.self_ps
        stage.elements += one.elements
    found = [
        Stage(stage_name(path), one.self_ps / 1000 / steps, one.elements / steps)
        for path, one in together.items()
        if one.self_ps > 0
    ]
    return tuple(sorted(found, key=lambda stage: (-stage.busy_ns, stage.name)))


def stage_name(path: str) -> str:
    """Return a stage's own name from the way to it: Iterator::Root::Prefetch::BatchV2 is Batch."""
    return _PLAIN.sub("", _ROUND.sub("", path).rpartition("::")[2])


def _read(line: Line, window: Interval, functions: Mapping[Stat | None, int], work: dict[str, _Work]) -> None:
    """Add what a thread did for each stage."""
    stack: list[TraceEvent] = []
    latest = ""
    for event in line.events:
        if event.end_ps <= window[0] or event.start_ps >= window[1]:
            continue
        if event.name == _RUN_ASYNC:
            while stack and stack[-1].end_ps <= event.start_ps:
                stack.pop()
            # A parallel stage first takes an element of the stage before it, then starts its function on it.
            path = stack[-1].name if stack else latest.rpartition("::")[0]
            spent = functions.get(event.stats.get("id"))
            if path and spent is not None:
                one = work.setdefault(path, _Work())
                one.self_ps += spent
                one.elements += 1
            continue
        if not event.name.startswith(_ITERATOR):
            continue
        while stack and stack[-1].end_ps <= event.start_ps:
            stack.pop()
        span = min(event.end_ps, window[1]) - max(event.start_ps, window[0])
        if stack and not _waits(stack[-1].name):
            work[stack[-1].name].self_ps -= span
        if not stack:
            latest = event.name
        stack.append(event)
        if not _waits(event.name):
            one = work.setdefault(event.name, _Work())
            one.self_ps += span
            one.elements += 1


def _waits(path: str) -> bool:
    return _WAITS.match(path.rpartition("::")[2]) is not None

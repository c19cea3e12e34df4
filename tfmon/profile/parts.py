"""The time of a step in parts that add up to it.

Simultaneous operations share it equally. All-reduce counts while nothing computes, copies while no kernel runs;
the loop's thread gets the rest. So hidden work gets no time.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from tfmon.model.profile import Part
from tfmon.profile.loop_thread import LoopThread
from tfmon.profile.operations import OpRun
from tfmon.profile.trace import Interval, Times

MOST_PARTS = 500
"""The rest is one part, because messages are limited."""
SMALLER = "all smaller operations"
LONGEST_NAME = 300
"""Kernels have names of thousands of characters."""


def parts_of(runs: Sequence[OpRun], loop: LoopThread, drain: Times, pending: Times) -> tuple[Part, ...]:
    """Return the parts, the longest first.

    Args:
        runs: Operations and copies; the outer ones on a thread first.
        drain: The time after the last step in which the loop waits for the device.
        pending: The time in which launched work had not begun.
    """
    window, steps = loop.window[0], len(loop.steps)
    shares = shared(runs, window)
    sums: dict[tuple[str, str, str], list[float]] = {}
    for run, share in zip(runs, shares, strict=True):
        if run.start_ps < window[1] and run.end_ps > window[0]:
            key = (run.name[:LONGEST_NAME], run.type[:LONGEST_NAME], run.device)
            amounts = sums.setdefault(key, [0.0, 0.0, 0])
            for index, amount in enumerate((share, run.self_ps, 1)):
                amounts[index] += amount
    parts = [
        Part(*key, share / 1000 / steps, self_ps / 1000 / steps, int(count))
        for key, (share, self_ps, count) in sums.items()
    ]
    parts.sort(key=lambda part: (-part.step_ns, part.name))
    if more := parts[MOST_PARTS:]:
        step_ns, self_ns = (sum(getattr(part, name) for part in more) for name in ("step_ns", "self_ns"))
        parts[MOST_PARTS:] = [Part(SMALLER, "…", "", step_ns, self_ns, sum(part.count for part in more))]
    idle = loop.window - Times(run.span for run in runs)
    reasons = _idle(idle, loop, drain, pending)
    parts += [Part(reason, "", "", loop.per_step(times)) for reason, times in reasons if times]
    return tuple(sorted(parts, key=lambda part: -part.step_ns))


def _idle(idle: Times, loop: LoopThread, drain: Times, pending: Times) -> Iterator[tuple[str, Times]]:
    """The first reason that covers a moment counts."""
    reasons = (
        ("waiting for what is launched to begin", pending),
        ("tracing a function", loop.traced),
        ("compiling with XLA", loop.compiled),
        ("waiting for input", loop.input),
        ("waiting for XLA's threads", loop.awaits_xla),
        ("dispatch, in TensorFlow's runtime", loop.runtime),
        ("dispatch, in Python" if loop.runtime else "dispatch", loop.calls),
        ("after the last step", drain),
    )
    for name, times in reasons:
        yield name, idle & times
        idle = idle - times
    yield "outside of input and step", idle


def shared(runs: Sequence[OpRun], window: Interval) -> list[float]:
    """Return each run's part of the window, in ps."""
    layers = 1 + max((run.layer for run in runs), default=0)
    clocks = [0.0] * layers
    """Time of each thread with a run in a layer."""
    running = [0] * layers
    shares, since = [0.0] * len(runs), [0.0] * len(runs)
    threads: dict[Hashable, list[int]] = {}
    at = window[0]
    for time, begins, number in _marks(runs, window):
        if time > at:
            layer = next((layer for layer in range(layers) if running[layer]), None)
            if layer is not None:
                clocks[layer] += (time - at) / running[layer]
            at = time
        inner = threads.setdefault(runs[number].thread, [])
        if inner:
            outer, layer = inner[-1], runs[inner[-1]].layer
            shares[outer] += clocks[layer] - since[outer]
            running[layer] -= 1
        if begins:
            inner.append(number)
        else:
            inner.remove(number)
        if inner:
            layer = runs[inner[-1]].layer
            since[inner[-1]] = clocks[layer]
            running[layer] += 1
    return shares


def _marks(runs: Sequence[OpRun], window: Interval) -> list[tuple[int, bool, int]]:
    marks: list[tuple[int, bool, int]] = []
    for number, run in enumerate(runs):
        start, end = max(run.start_ps, window[0]), min(run.end_ps, window[1])
        if start < end:
            marks += [(start, True, number), (end, False, number)]
    return sorted(marks)

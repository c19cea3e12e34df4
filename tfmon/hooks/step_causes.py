"""Finds why the training step itself is slow, and estimates the cost."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import time
import weakref
from collections.abc import Callable, Collection, Iterable
from typing import Any

from tfmon.hooks import padding
from tfmon.hooks.cause_reports import Observation, causes
from tfmon.hooks.graph_causes import MOST_NS, GraphPart, parts_of
from tfmon.hooks.inspection import line_now, logs_operations, may_compute
from tfmon.hooks.patches import Around, hooks
from tfmon.hooks.script_lines import (
    layer_of,
    line_in_graph,
    line_in_loop,
    line_that_made,
    namespaces,
    patch_makers,
)
from tfmon.hooks.sources import nothing
from tfmon.system.lane_clock import lane_clock
from tfmon.trainer.slices import read_machine

IN_GRAPH = 2.8
"""Slowdown by a loop in the graph. Measured: 2.3, and 3 to 4 on a slower machine, with 400 rounds on 2 cores."""
LEAST_ROWS, MOST_TOUCHED = 10_000, 0.5
MOST_SHARE = 0.95
MOST_DENSE = 0.85
CALIBRATION = 4_000_000
_PASSES = {"Adam": 12, "AdamW": 13, "Nadam": 14, "Adamax": 10, "RMSprop": 9, "Adagrad": 7, "Lion": 8, "SGD": 4}
"""Operations on all rows. Source: Keras 3.15, `update_step`."""
FLOPS_OF_WEIGHT, FLOPS_PER_NS, POSITIONS = 6, 10.0, 400
"""Operations per weight and example, speed of a slow core, and assumed filter positions."""
LEAST_SLOWDOWN = 1.2


class StepCauses:
    """Causes within steps. Thread: the training thread."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget all causes."""
        self._shares: list[tuple[Observation, Callable[[float], float]]] = []
        self._settled = 0, 0, lane_clock.now_ns(), _cpu_ns()
        self._busy_ns = _busy_ns()
        self._steps, self._wall_ns, self._idle = 0, 0.0, 0.0
        self._traced_ns = 0
        self._made: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._in_loop: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._eagerly = self._policy = ""
        self.rows = 0
        self.fitted: Callable[[], Any] = nothing

    def made_in_loop(self) -> str:
        """Return the line in a loop that makes the fitted model."""
        model = self.fitted()
        return "" if model is None else self._in_loop.get(model, "")

    def install(self, tensorflow: Any) -> None:
        """Record the line that runs functions eagerly."""
        hooks.replace(tensorflow.config, "run_functions_eagerly", hooks.around(self._note_eagerly))

    def patch(self, keras: Any) -> None:
        """Record the lines that compile, make layers and callbacks, or set policies."""
        owner = next(kind for kind in keras.Model.__mro__ if "compile" in kind.__dict__)
        hooks.replace(owner, "compile", hooks.around(self._note))
        for each in namespaces(keras):
            hooks.replace(each.mixed_precision, "set_global_policy", hooks.around(self._note_policy))
            if hasattr(each, "config"):
                hooks.replace(each.config, "set_dtype_policy", hooks.around(self._note_policy))
        patch_makers(keras)
        padding.patch(keras)

    def _note(self, made: Any, *_args: object, **_more: object) -> Around:
        yield None
        self._made[made], self._in_loop[made] = line_now(), line_in_loop()

    def _note_eagerly(self, run_eagerly: object = False, **_more: object) -> Around:
        yield None
        self._eagerly = line_now() if run_eagerly else ""

    def _note_policy(self, *_args: object, **_more: object) -> Around:
        yield None
        self._policy = line_now()

    def add(self, seen: Observation, share: Callable[[float], float]) -> None:
        """Add a cause. `share` returns the share of a step with this processor time."""
        self._shares = [(cause, other) for cause, other in self._shares if cause is not seen]
        self._shares.append((seen, share))

    def takes(self, observation: Observation) -> None:
        """Report a cause whose share is the figure `of_step`."""
        self.add(causes.record(observation), lambda _step_ns: observation.figures["of_step"])

    def settle(self, called_ns: int, steps: int) -> None:
        """Add the time since the last call to the causes, by share. `called_ns`: time without input."""
        before, now = self._settled, (called_ns, steps, lane_clock.now_ns(), _cpu_ns())
        self._settled, self._steps = now, steps
        time_ns, more, passed_ns = now[0] - before[0], now[1] - before[1], now[2] - before[2]
        # Cores that other programs use are not idle. During a suspension, another lane may use them.
        (all_ns, suspended_ns), self._busy_ns = self._busy_ns, _busy_ns()
        busy_ns = now[3][1] - before[3][1]
        if self._busy_ns[1] == suspended_ns:
            busy_ns = max(busy_ns, self._busy_ns[0] - all_ns)
        # Only `fit` contains the trace.
        time_ns -= self._traced_ns if self._traced_ns < time_ns else 0
        self._traced_ns = 0
        if more <= 0 or time_ns <= 0 or passed_ns <= 0:
            return
        self._wall_ns = time_ns / more
        self._idle = max(0.0, 1.0 - busy_ns / passed_ns / (os.cpu_count() or 1))
        step_ns = _normal(before[3], now[3]) * min(1.0, time_ns / passed_ns) / more
        parts = [(seen, share(step_ns)) for seen, share in self._shares]
        scale = min(1.0, MOST_SHARE / max(MOST_SHARE, sum(part for _, part in parts)))
        for seen, part in parts:
            seen.cost_ns += round(scale * part * time_ns)
            seen.count = max(seen.count, 1)
            seen.changed = True

    def runs_eagerly(self, line: str, variables: Iterable[Any], model: Any = None) -> None:
        """Report that steps run eagerly."""
        if logs_operations():
            return
        keras = model is not None and model.run_eagerly
        cause_line = (self._made.get(model) if keras and not self._eagerly else self._eagerly) or line
        seen = causes.saw("step_eager", cause_line, subject="the step", count=0)
        flops = FLOPS_OF_WEIGHT * sum(map(_multiplications, variables))

        def share(step_ns: float) -> float:
            computing_ns = flops * max(1, self.rows) / FLOPS_PER_NS / (os.cpu_count() or 1)
            seen.figures["gain"] = max(0.0, MOST_SHARE - computing_ns / step_ns)
            return MOST_SHARE

        self.add(seen, share)

    def traced(self, function: Any, took_ns: int, rows: int = 0) -> None:
        """Search a training graph for causes."""
        self.rows = rows or self.rows
        self._traced_ns += took_ns
        model = self.fitted()
        compiled = self._made.get(model, "") if model is not None else ""
        for part in parts_of(function.graph, rows):
            part.line = part.line or line_now()
            if part.cause == "step_metrics" and model is not None and part.line.startswith(line_now()):
                part.line = compiled or part.line
            if part.cause == "step_16_bits":
                self._of_16_bits(part)
                continue
            seen = causes.record(part)
            if part.traced:
                self._starts(seen, round(part.traced * took_ns))
            if part.cause == "trace_unrolled":
                self.add(seen, functools.partial(self._unrolled, seen, part, self._steps))
            elif part.cause == "step_augmentation":
                self.add(seen, functools.partial(self._augments, seen, part.share))
            else:
                self.add(seen, functools.partial(_bounded, MOST_NS * part.started, part.share))

    def _unrolled(self, seen: Observation, part: GraphPart, first: int, _step_ns: float) -> float:
        pays = seen.figures["of_start"] / ((IN_GRAPH - 1) * self._wall_ns)
        seen.figures["gain"] = max(0.0, 1.0 - (self._steps - first) / pays)
        seen.what = f"{part.what}; in the graph, it pays below {pays:.0f} steps"
        return 0.0

    def _augments(self, seen: Observation, share: float, _step_ns: float) -> float:
        seen.figures["gain"] = 1.0 if _has_gpu() else min(1.0, self._idle / share)
        return share

    def _of_16_bits(self, part: GraphPart) -> None:
        if not may_compute():
            return
        slower = 1.0 if _has_gpu() else _slowdown_in(part.subject, part.operations)
        if slower >= LEAST_SLOWDOWN:
            what = f"{slower:.1f} times slower than float32 on this CPU"
            seen = causes.saw(part.cause, self._policy or part.line, subject=part.subject, what=what, count=0)
            seen.figures["gain"] = 1.0 - 1.0 / slower
            self.add(seen, lambda _step_ns: part.share)

    @staticmethod
    def _starts(seen: Observation, cost_ns: int) -> None:
        seen.count, seen.kept = 1, True
        seen.figures["of_start"] = seen.figures.get("of_start", 0.0) + cost_ns
        causes.add(seen, cost_ns)

    def applies(self, optimizer: Any, gradients: Any, variables: Any = None) -> None:
        """Report tables of which an optimizer updates all rows, despite sparse gradients."""
        if not may_compute():
            return
        inner = getattr(optimizer, "inner_optimizer", None) or optimizer
        passes = _PASSES.get(type(inner).__name__, 0)
        shapes = {tuple(variable.shape) for variable in getattr(inner, "variables", ())}
        for gradient, table in zip(gradients, variables or inner._trainable_variables, strict=False):
            sparse = hasattr(gradient, "dense_shape") and hasattr(gradient, "indices")
            shape = tuple(table.shape) if sparse and passes else ()
            if shape not in shapes or not shape or shape[0] < LEAST_ROWS:
                continue
            size, rows = math.prod(shape), shape[0]
            used = _rows_of(gradient)
            layer = layer_of(table)
            line = line_that_made(layer) if layer is not None else ""
            name = str(getattr(layer, "name", "") or getattr(table, "name", "a table"))
            seen = causes.saw("update_dense", line or line_in_graph() or line_now(), subject=name, count=0)
            dense_ns = passes * _pass_ns() * size / CALIBRATION
            self.add(seen, functools.partial(self._dense, seen, used, rows, type(inner).__name__, dense_ns))

    def _dense(
        self, seen: Observation, used: tuple[int, int], rows: int, name: str, dense_ns: float, step_ns: float
    ) -> float:
        times, more = used
        touched = min(1.0, times * (max(1, self.rows) if more else 1) / rows)
        seen.what = f"{name} updates all {rows} rows, of which a batch uses at most {100 * touched:.2g} %"
        seen.figures |= {"gain": 1.0 - touched, "wasted": 1.0 - touched}
        return _bounded(dense_ns, MOST_DENSE, step_ns) if touched <= MOST_TOUCHED else 0.0


def _bounded(time_ns: float, most: float, step_ns: float) -> float:
    return min(most, time_ns / step_ns)


def _multiplications(variable: Any) -> float:
    shape = tuple(variable.shape)
    if len(shape) < 2 or "embedding" in str(variable.name):
        return 0.0
    layer, times = layer_of(variable), [POSITIONS if len(shape) > 2 else 1]
    with contextlib.suppress(AttributeError, ValueError):
        times = [math.prod(size or 1 for size in tensor.shape[1:-1]) for tensor in (layer.input, layer.output)]
    return float(math.prod(shape) * max(times))


def _rows_of(gradient: Any) -> tuple[int, int]:
    """Return the number of indices, and 1 if it is per example."""
    if gradient.indices.shape[0]:
        return int(gradient.indices.shape[0]), 0
    made_of = next(iter(gradient.indices.op.inputs), gradient.indices)
    return math.prod(size or 1 for size in (made_of.shape[1:] if made_of.shape.rank else ())), 1


def _has_gpu() -> bool:
    import tensorflow as tf

    return bool(tf.config.list_logical_devices("GPU"))


@functools.cache
def _slowdown_in(kind: str, operations: Collection[str]) -> float:
    """Return how much longer this CPU takes in 16 bits than in float32, from the gradients, too.

    On a CPU that multiplies float16 itself, the gradient of a filter can take a hundred times as long.
    """
    import tensorflow as tf

    def time_in(kind: str) -> float:
        with tf.init_scope(), tf.device("CPU:0"):
            images, filters = tf.zeros((2, 16, 16, 32), kind), tf.zeros((3, 3, 32, 32), kind)
            to_images = {"input_sizes": images.shape, "filter": filters, "out_backprop": images}
            to_filters = {"input": images, "filter_sizes": filters.shape, "out_backprop": images}
            arguments = {
                "Conv2D": {"input": images, "filter": filters},
                "Conv2DBackpropInput": to_images,
                "Conv2DBackpropFilter": to_filters,
            }
            calls = (
                functools.partial(getattr(tf.raw_ops, name), **given, strides=[1] * 4, padding="SAME")
                for name, given in arguments.items()
                if name in operations
            )
            matrix = tf.zeros((256, 256), kind)
            return sum(_time_of(call, 2) for call in calls) or _time_of(lambda: matrix @ matrix, 4)

    return time_in(kind) / time_in("float32")


@functools.cache
def _pass_ns() -> float:
    import tensorflow as tf

    with tf.init_scope(), tf.device("CPU:0"):
        value = tf.zeros((CALIBRATION,))
        return _time_of(lambda: value + value, 4)


def _time_of(operation: Callable[[], object], times: int) -> float:
    operation()
    before = _cpu_ns()
    for _ in range(times):
        operation()
    return _normal(before, _cpu_ns()) / times


def _cpu_ns() -> tuple[int, int]:
    return time.thread_time_ns(), time.process_time_ns()


def _busy_ns() -> tuple[int, int]:
    """Return the used and stolen time of all cores, and the time for which this lane was suspended."""
    return sum(read_machine() or (0,)), lane_clock.suspended_ns


def _normal(before: tuple[int, int], now: tuple[int, int]) -> float:
    """Return the processor time between two readings of `_cpu_ns`."""
    thread_ns, process_ns = now[0] - before[0], now[1] - before[1]
    return max(1.0, thread_ns, process_ns / (os.cpu_count() or 1))


step_causes = StepCauses()

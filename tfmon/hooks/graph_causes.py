"""Finds expensive operations in the graph of a training step.

Operations are counted, because starting them dominates. Operations on images are weighed by size.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Container, Iterator
from typing import Any

from tfmon.hooks.cause_reports import Observation
from tfmon.hooks.dataset_chain import operations
from tfmon.hooks.inspection import line_at
from tfmon.hooks.script_lines import line_of_stack, line_that_made, loop_of_stack, made_layers
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.lane_events import UNROLLS
from tfmon.trainer.runtime import has_bfloat16

LEAST_OPERATIONS, MOST_OPERATIONS, SAMPLE, FIRST_LOOK = 400, 200_000, 150, 10
"""Limits of graphs and stacks; every tenth stack is read first. Reading a stack takes 0.2 ms."""
LEAST_METRICS, LEAST_UNROLLED = 300, 2_000
FEW_METRICS = 100
LEAST_PART = 0.5
MOST_NS = 5_000
OF_VARIABLE = 300
"""Minimum operations per variable of a loop. A loop over layers makes new variables."""
ROWS = 32
"""Assumed batch size."""
_IDLE = frozenset((
    "Const", "Placeholder", "NoOp", "Identity", "ReadVariableOp", "Reshape", "Shape", "StridedSlice", "Pack",
))  # fmt: skip
_MULTIPLIES = ("MatMul", "BatchMatMulV2", "Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", "Einsum")
_NS_OF_VALUE = {"ImageProjectiveTransformV3": 15.0, "ResizeBilinear": 5.0, "ResizeBicubic": 30.0}
"""Time per output value on one core. `_NS` applies to other operations."""
_NS, _NS_OF_FLOPS = 1.0, 0.05
AUGMENTS = "/image_preprocessing/"


@dataclass(slots=True)
class GraphPart(Observation):
    """A cause in a graph. Its line is empty if unknown."""

    started: float = 0.0
    """Operations per step, if `share` is unknown."""
    share: float = 0.95
    """Maximum share of the step."""
    traced: float = 0.0
    """Share of the trace's time."""
    operations: tuple[str, ...] = ()
    """Kinds of operations that the cause slows down."""


def parts_of(graph: Any, rows: int) -> Iterator[GraphPart]:
    """Yield the causes in a graph."""
    ops = operations(graph, MOST_OPERATIONS)
    if ops is None:
        return
    yield from _in_16_bits(ops)
    loops = list(_mapped(ops, rows or ROWS))
    yield from loops
    if not loops:
        yield from _augmentation(ops, rows or ROWS)
        if len(ops) >= LEAST_OPERATIONS:
            yield from _repeated(ops, len(graph.variables))


def _mapped(ops: list[Any], rows: int) -> Iterator[GraphPart]:
    loops = [op for op in ops if op.type in ("While", "StatelessWhile")]
    for loop in loops:
        stack = _stack_of(loop)
        first = next((number for number, frame in enumerate(stack) if frame.filename.endswith("/map_fn.py")), 0)
        line = line_of_stack(stack[:first])
        if not line or "gradient_tape" in loop.name:
            continue
        # The loop and its gradient.
        alike = [candidate for candidate in loops if candidate is loop or loop.name in candidate.name]
        bodies = (looped.graph._functions.get(looped.get_attr("body").name) for looped in alike)
        inside = sum(len(operations(body.graph, MOST_OPERATIONS) or ()) for body in bodies if body is not None)
        what = f"{inside} operations for each example"
        yield GraphPart("step_map_fn", line, what=what, started=rows * inside)


def _augmentation(ops: list[Any], rows: int) -> Iterator[GraphPart]:
    layers = {layer.name: layer for layer in made_layers() if AUGMENTS.strip("/") in type(layer).__module__}
    by_layer: Counter[str] = Counter()
    total = 0.0
    for op in ops if layers else ():
        work_ns = _work_ns(op, rows)
        total += work_ns
        by_layer[_layer_in(op.name, layers)] += round(work_ns)
    del by_layer[""]
    if by_layer:
        names = [layers[name] for name, _ in by_layer.most_common()]
        line = next(filter(None, map(line_that_made, names)), "")
        what = ", ".join(type(layer).__name__ for layer in names)
        yield GraphPart("step_augmentation", line, share=by_layer.total() / total, what=what)


def _layer_in(name: str, layers: Container[str]) -> str:
    scopes = (form for scope in name.split("/")[:-1] for form in (scope, re.sub(r"_\d+$", "", scope)))
    return next((scope for scope in scopes if scope in layers), "")


def _work_ns(operation: Any, rows: int) -> float:
    kind = operation.type
    if kind in _IDLE:
        return 0.0
    values = sum(_size(output.shape, rows) for output in operation.outputs)
    if kind == "MatMul":
        inner = operation.inputs[0].shape[0 if operation.get_attr("transpose_a") else 1]
        return MOST_NS + _NS_OF_FLOPS * values * (inner or rows)
    if kind.startswith("Conv2D"):
        kernel = operation.outputs[0] if kind == "Conv2DBackpropFilter" else operation.inputs[1]
        outer = operation.outputs[0] if kind == "Conv2D" else operation.inputs[2]
        return MOST_NS + _NS_OF_FLOPS * _size(outer.shape, rows) * _size(kernel.shape[:3], 1)
    return MOST_NS + _NS_OF_VALUE.get(kind, _NS) * values


def _size(shape: Any, rows: int) -> int:
    return 0 if shape.rank is None else math.prod(size or rows for size in shape)


def _repeated(ops: list[Any], variables: int) -> Iterator[GraphPart]:
    every = len(ops)
    sample = ops[:: max(1, every // SAMPLE)]
    first = sample[::FIRST_LOOK]
    least = max(LEAST_PART, LEAST_METRICS / every) / 2 * len(first)
    if every < LEAST_UNROLLED and sum(_is_metric(_stack_of(op)) for op in first) < least:
        return  # reading all stacks would start a garbage collection of 0.2 s
    stacks = [_stack_of(op) for op in sample]
    in_metrics = [number for number, stack in enumerate(stacks) if _is_metric(stack)]
    busy = sum(op.type not in _IDLE for op in sample)
    count, part = len(in_metrics) * every // len(sample), len(in_metrics) / len(sample)
    if count >= LEAST_METRICS and part >= LEAST_PART:
        lines = Counter(line_of_stack(stacks[number]) for number in in_metrics)
        yield GraphPart(
            "step_metrics",
            lines.most_common(1)[0][0],
            started=count,
            share=sum(sample[number].type not in _IDLE for number in in_metrics) / busy,
            traced=part,
            what=f"{count} of {every} operations of each step",
            figures={"gain": 1.0 - FEW_METRICS / count},
        )
        return
    if every < LEAST_UNROLLED:
        return
    forward = [
        (op, stack)
        for op, stack in zip(sample, stacks, strict=True)
        if not any("backprop.py" in frame.filename for frame in stack)
    ]
    unrolled = {layer.name: layer for layer in made_layers() if getattr(layer, "unroll", False)}
    scopes = Counter(layer for op, _ in forward for layer in [_layer_in(op.name, unrolled)] if layer)
    loops = Counter(loop for _, stack in forward for loop in [loop_of_stack(stack)] if loop)
    layer, rounds = scopes.most_common(1)[0] if scopes else ("", 0)
    line = line_that_made(unrolled[layer]) if layer else ""
    if not rounds and loops:
        (path, number), rounds = loops.most_common(1)[0]
        line = line_at(path, number)
    part = rounds / max(1, len(forward))
    if part >= LEAST_PART and (layer or part * every >= OF_VARIABLE * variables):
        figures = {"inside": part * every, UNROLLS: float(bool(layer))}
        what = f"{round(part * every)} of {every} operations"
        yield GraphPart("trace_unrolled", line, traced=part, subject=layer, what=what, figures=figures)


def _stack_of(operation: Any) -> list[Any]:
    return list(operation.traceback or ())  # None if C++ made the operation


def _is_metric(stack: list[Any]) -> bool:
    return any("compile_utils" in frame.filename or "/metrics/" in frame.filename for frame in stack)


def _in_16_bits(ops: list[Any]) -> Iterator[GraphPart]:
    emulated = ("float16",) if has_bfloat16() else ("float16", "bfloat16")
    multiplies = ((op.type, op.outputs[0].dtype.name) for op in ops if op.type in _MULTIPLIES)
    used = {(operation, kind) for operation, kind in multiplies if kind in emulated}
    if used:
        kind = max(kind for _, kind in used)
        operations_ = tuple(sorted(operation for operation, other in used if other == kind))
        yield GraphPart("step_16_bits", "", subject=kind, operations=operations_)

"""Finds expensive operations in the graph of a training step.

Operations are counted, because starting them dominates; on images they are weighed by size.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import Any

from tfmon.hooks.dataset_chain import operations
from tfmon.hooks.inspection import line_at
from tfmon.hooks.patches import FILES
from tfmon.hooks.script_lines import line_of_stack, line_that_made, loop_of_stack, made_layers
from tfmon.model.script_events import UNROLLS
from tfmon.trainer.runtime import has_bfloat16

LEAST_OPERATIONS, MOST_OPERATIONS, SAMPLE = 400, 200_000, 150
"""Limits of graphs, and of stacks. Reading a stack takes 0.2 ms."""
LEAST_METRICS, LEAST_UNROLLED = 300, 2_000
FEW_METRICS = 100
"""Operations of a loss and an accuracy."""
LEAST_PART = 0.5
MOST_NS = 5_000
"""Maximum time of a small operation."""
OF_VARIABLE = 300
"""Operations per variable of a loop. A loop over layers has new variables."""
ROWS = 32
"""Assumed batch size if unknown."""
_IDLE = frozenset((
    "Const", "Placeholder", "NoOp", "Identity", "ReadVariableOp", "Reshape", "Shape", "StridedSlice", "Pack",
))  # fmt: skip
_MULTIPLIES = ("MatMul", "BatchMatMulV2", "Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", "Einsum")
_NS_OF_VALUE = {"ImageProjectiveTransformV3": 15.0, "ResizeBilinear": 5.0, "ResizeBicubic": 30.0}
"""For each value of an output on one core. `_NS` for other operations."""
_NS, _NS_OF_FLOPS = 1.0, 0.05
AUGMENTS = "/image_preprocessing/"
FILES.add(__file__)


@dataclass(slots=True)
class GraphPart:
    """A cause in a graph."""

    cause: str
    place: str
    """Empty if the stack shows only `fit`."""
    started: float = 0.0
    """Operations per step, if `share` is unknown."""
    share: float = 0.95
    """Maximum share of the step."""
    traced: float = 0.0
    """Share of the trace."""
    subject: str = ""
    what: str = ""
    figures: dict[str, float] = field(default_factory=dict)


def parts_of(graph: Any, rows: int) -> Iterator[GraphPart]:
    """Yield the causes in a graph."""
    found = operations(graph, MOST_OPERATIONS)
    if found is None:
        return
    yield from _in_16_bits(found)
    loops = list(_mapped(found, rows or ROWS))
    yield from loops
    if not loops:
        yield from _augmentation(found, rows or ROWS)
        if len(found) >= LEAST_OPERATIONS:
            yield from _repeated(found, len(graph.variables))


def _mapped(found: list[Any], rows: int) -> Iterator[GraphPart]:
    """Yield calls of `tf.map_fn`."""
    loops = [one for one in found if one.type in ("While", "StatelessWhile")]
    for loop in loops:
        stack = list(loop.traceback)
        first = next((number for number, one in enumerate(stack) if one.filename.endswith("/map_fn.py")), 0)
        place = line_of_stack(stack[:first])
        if not place or "gradient_tape" in loop.name:
            continue
        alike = [one for one in loops if one is loop or loop.name in one.name]  # with its gradient
        bodies = (one.graph._functions.get(one.get_attr("body").name) for one in alike)
        inside = sum(len(operations(body.graph, MOST_OPERATIONS) or ()) for body in bodies if body is not None)
        yield GraphPart("step_map_fn", place, rows * inside, what=f"{inside} operations for each example")


def _augmentation(found: list[Any], rows: int) -> Iterator[GraphPart]:
    layers = {layer.name: layer for layer in made_layers() if AUGMENTS.strip("/") in type(layer).__module__}
    by_layer: Counter[str] = Counter()
    total = 0.0
    for one in found if layers else ():
        work_ns = _work_ns(one, rows)
        total += work_ns
        by_layer[_layer_in(one.name, layers)] += round(work_ns)
    del by_layer[""]
    if by_layer:
        names = [layers[name] for name, _ in by_layer.most_common()]
        place = next(filter(None, map(line_that_made, names)), "")
        what = ", ".join(type(one).__name__ for one in names)
        yield GraphPart("step_augmentation", place, share=by_layer.total() / total, what=what)


def _layer_in(name: str, layers: Container[str]) -> str:
    """TensorFlow numbers repeated scopes."""
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
    return 0 if shape.rank is None else math.prod(one or rows for one in shape)


def _repeated(found: list[Any], variables: int) -> Iterator[GraphPart]:
    every = len(found)
    sample = found[:: max(1, every // SAMPLE)]
    stacks = [list(one.traceback) for one in sample]
    in_metrics = [number for number, stack in enumerate(stacks) if _is_metric(stack)]
    busy = sum(one.type not in _IDLE for one in sample)
    count, part = len(in_metrics) * every // len(sample), len(in_metrics) / len(sample)
    if count >= LEAST_METRICS and part >= LEAST_PART:
        lines = Counter(line_of_stack(stacks[number]) for number in in_metrics)
        yield GraphPart(
            "step_metrics",
            lines.most_common(1)[0][0],
            count,
            share=sum(sample[number].type not in _IDLE for number in in_metrics) / busy,
            traced=part,
            what=f"{count} of {every} operations of each step",
            figures={"gain": 1.0 - FEW_METRICS / count},
        )
        return
    if every < LEAST_UNROLLED:
        return
    # Gradients are made outside.
    forward = [
        (one, stack)
        for one, stack in zip(sample, stacks, strict=True)
        if not any("backprop.py" in frame.filename for frame in stack)
    ]
    unrolled = {one.name: one for one in made_layers() if getattr(one, "unroll", False)}
    scopes = Counter(layer for one, _ in forward for layer in [_layer_in(one.name, unrolled)] if layer)
    loops = Counter(loop for _, stack in forward for loop in [loop_of_stack(stack)] if loop)
    layer, rounds = scopes.most_common(1)[0] if scopes else ("", 0)
    place = line_that_made(unrolled[layer]) if layer else ""
    if not rounds and loops:
        (path, number), rounds = loops.most_common(1)[0]
        place = line_at(path, number)
    part = rounds / max(1, len(forward))
    if part >= LEAST_PART and (layer or part * every >= OF_VARIABLE * variables):
        figures = {"inside": part * every, UNROLLS: float(bool(layer))}
        what = f"{round(part * every)} of {every} operations"
        yield GraphPart("trace_unrolled", place, traced=part, subject=layer, what=what, figures=figures)


def _is_metric(stack: list[Any]) -> bool:
    return any("compile_utils" in frame.filename or "/metrics/" in frame.filename for frame in stack)


def _in_16_bits(found: list[Any]) -> Iterator[GraphPart]:
    emulated = ("float16",) if has_bfloat16() else ("float16", "bfloat16")
    multiplies = ((one.type, one.outputs[0].dtype.name) for one in found if one.type in _MULTIPLIES)
    kinds = Counter((operation, kind) for operation, kind in multiplies if kind in emulated)
    for (operation, kind), _ in kinds.most_common(1):
        yield GraphPart("step_16_bits", "", subject=kind, figures={"convolves": float("Conv" in operation)})

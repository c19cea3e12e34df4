"""Finds the lines that make a script's input slow: slow and wasted work of its pipeline."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from tfmon.hooks.cause_reports import Observation
from tfmon.hooks.dataset_chain import (
    BATCHES,
    BETWEEN,
    CHEAP_NS,
    GENERATOR,
    MAPS,
    PYTHON,
    STAGES_OF_MAPS,
    PipelineStage,
    Transformation,
    batch_size_of,
    chain_of,
    filled_caches,
    has_state,
    is_generator,
    stages_of,
    transformations,
)
from tfmon.hooks.inspection import is_of_script, line_of_function
from tfmon.hooks.padding import padding_of
from tfmon.model.lane_events import (
    BATCH,
    CACHE,
    DATASET,
    ENDLESS,
    FILE_CACHE,
    FITS,
    MOVABLE,
    RANDOM,
    SEQUENTIAL,
    SHUFFLE,
    SHUFFLED,
    UNCACHED,
)
from tfmon.system.limits import limited_memory, read_memory

LEAST_ELEMENTS = 16
PASSES = "_tfmon_passes"
LEAST_DROPPED, LEAST_SHARE = 0.2, 0.05
MEMORY_SHARE = 0.5
"""Share of the available memory that a cache may take."""
_DROPS = ("_SkipDataset", "_FilterDataset", "_ShardDataset")
_FLAT = ("_FlatMapDataset", "_InterleaveDataset", "_ParallelInterleaveDataset")
_BY_ELEMENT = frozenset((
    "Placeholder", "Const", "Identity", "NoOp", "Cast", "AddV2", "Add", "Sub", "Mul", "RealDiv", "Div", "Neg",
    "Abs", "Square", "Sqrt", "Rsqrt", "Exp", "Log", "Log1p", "Tanh", "Sigmoid", "Relu", "Maximum", "Minimum",
    "Pow", "ClipByValue", "Round", "Floor", "Equal", "Greater", "GreaterEqual", "Less", "LessEqual", "LogicalAnd",
    "LogicalOr", "LogicalNot", "SelectV2", "Sin", "Cos", "Reciprocal", "SquaredDifference",
))  # fmt: skip
Nodes: TypeAlias = Sequence[Transformation]
Waste: TypeAlias = tuple[Observation, frozenset[Transformation]]
"""A cause, and the transformations that it explains."""


def begin_pass(dataset: Any) -> None:
    """Count a training pass over a dataset."""
    for each in chain_of(dataset):
        setattr(each, PASSES, getattr(each, PASSES, 0) + 1)


def causes_of(
    iterator: Any, dataset: Any, prefetch: object, early: tuple[PipelineStage, ...] = ()
) -> list[Observation] | None:
    """Return the causes of slow input. None if the pipeline has just begun, or ended.

    Args:
        early: stages during the first wait, which `shuffle` closes later.
    """
    stages = stages_of(iterator)
    generators = sum(is_generator(node) for node in chain_of(dataset, filled_caches(dataset, stages)))
    ended = bool(stages) and sum(stage.kind == "Generator" for stage in stages) < generators
    if ended or (stages and max(stage.elements for stage in stages) < LEAST_ELEMENTS):
        return None
    counted = early if early and not any(stage.kind in STAGES_OF_MAPS for stage in stages) else stages
    total_ns = sum(stage.busy_ns for stage in counted) or 1.0
    nodes = transformations(dataset, counted)
    batched = frozenset(_better_batched(nodes))
    waste = _waste_of(nodes, total_ns, batched) if stages else []
    explained = {node for _, nodes_ in waste for node in nodes_}
    result = [
        *(seen for seen, _ in waste),
        *padding_of(nodes),
        *_of_generators(nodes, stages, total_ns),
        *_of_maps(nodes, total_ns, explained, batched),
    ]
    if prefetch == "off" and not any(map(_has_own_workers, nodes)):
        users = [node for node in nodes if _calls_script(node)]
        before = [node for node in users if node.kind == "_PrefetchDataset"]
        line = next((node.line for node in (*before, *users)), "")
        what = "prefetch stands before other work" if before else "the pipeline does not end with prefetch"
        result.append(Observation("input_no_prefetch", line, "the pipeline", what, figures={"of_overlap": 1.0}))
    return result


def traits_of(dataset: Any) -> Iterator[str]:
    """Yield traits that select the advice."""
    yield DATASET
    nodes = transformations(dataset)
    kinds = [node.kind for node in nodes]
    caches = [node for node in nodes if node.kind == "CacheDataset"]
    cached = {node for cache in caches for node in cache}
    maps = [node for node in nodes if node.kind in MAPS and not node.is_generator]
    random = [map_ for map_ in maps if any(map(has_state, map_.operations or ()))]
    traits = {
        BATCH: any(kind in BATCHES for kind in kinds),
        SHUFFLE: "_ShuffleDataset" in kinds,
        CACHE: bool(caches),
        FILE_CACHE: any(cache.dataset._filename.numpy() for cache in caches),
        SEQUENTIAL: any(node.kind == "_MapDataset" for node in random),
        UNCACHED: any(node.kind in (*MAPS, *_FLAT) for node in nodes if node not in cached),
        RANDOM: bool(random),
        ENDLESS: int(dataset.cardinality()) == -1,
    }
    yield from (trait for trait, is_so in traits.items() if is_so)


def _calls_script(node: Transformation) -> bool:
    function = getattr(getattr(node.dataset, "_map_func", None), "_func", None)
    return getattr(function, "__module__", "") == GENERATOR or is_of_script(function)


def _of_generators(nodes: Nodes, stages: Collection[PipelineStage], total_ns: float) -> Iterator[Observation]:
    sources = [node for node in nodes if node.is_generator]
    counted = [stage for stage in stages if stage.kind == "Generator"]
    if len(sources) != len(counted):
        return
    for source, stage in zip(sources, counted, strict=True):
        share = {"of_input": stage.busy_ns / total_ns}
        generator = _generator_of(source)
        data = getattr(getattr(generator, "__self__", None), "py_dataset", None)
        if data is not None:
            kind, what = type(data), f"workers={data.workers}"
            line = line_of_function(kind.__getitem__)
            yield Observation("input_py_dataset", line, kind.__name__, what, figures=share)
            continue
        name = str(getattr(generator, "__name__", ""))
        cut = any(node.kind in BATCHES for node in nodes[: nodes.index(source)])
        by_script = is_of_script(generator) and name.isidentifier()
        what = f"from_generator({name})" if by_script else "a generator given to fit"
        cause = "input_generator" if cut else "input_generator_batches"
        yield Observation(cause, source.line, what, figures=share)


def _of_maps(
    nodes: Nodes, total_ns: float, explained: Collection[Transformation], batched: Collection[Transformation]
) -> Iterator[Observation]:
    for number, each in enumerate(nodes):
        ops = each.operations if each.kind in MAPS and each.stage is not None else None
        if each.stage is None or ops is None or each in explained or not _calls_script(each):
            continue
        kinds = {op.type for op in ops}
        more = ""
        if kinds & set(PYTHON):
            why = "input_python_function"
            more = "tf.py_function" if "EagerPyFunc" in kinds else "tf.numpy_function"
        elif each in batched:
            why, more = "input_map_before_batch", f"in batches of {_batch_after(nodes[:number])}"
        elif any(node.kind == "CacheDataset" for node in each) and not any(map(has_state, ops)):
            why = "input_map_after_cache"
        elif not each.stage.parallel and each.kind == "_MapDataset":
            why = "input_sequential_map"
        else:
            continue
        share = {"of_input": each.stage.busy_ns / total_ns}
        yield Observation(why, each.line, f"map({each.name})", more, figures=share)


def _better_batched(nodes: Nodes) -> Iterator[Transformation]:
    for number, each in enumerate(nodes):
        stage = each.stage if each.kind in MAPS else None
        size = _batch_after(nodes[:number])
        if stage is None or size < 2:
            continue
        examples = stage.elements * (size if stage.kind == "MapAndBatch" else 1)
        ops = each.operations
        cheap = stage.busy_ns / max(1, examples) < CHEAP_NS
        if cheap and ops is not None and {op.type for op in ops} <= _BY_ELEMENT:
            yield each


def _batch_after(later: Nodes) -> int:
    for node in reversed(later):
        if node.kind in BATCHES:
            return int(node.dataset._batch_size)
        if node.kind not in BETWEEN:
            break
    return 0


def _generator_of(node: Transformation) -> Any:
    ahead, seen = [node.function], set()
    while ahead:
        function = ahead.pop()
        seen.add(id(function))
        for cell in getattr(function, "__closure__", None) or ():
            value = cell.cell_contents
            if hasattr(value, "_generator"):
                return value._generator
            if callable(value) and id(value) not in seen and getattr(value, "__module__", "") == GENERATOR:
                ahead.append(value)
    return None


def _has_own_workers(node: Transformation) -> bool:
    adapter = getattr(_generator_of(node), "__self__", None) if node.is_generator else None
    return getattr(adapter, "enqueuer", None) is not None


def _waste_of(nodes: Nodes, total_ns: float, batched: Collection[Transformation]) -> list[Waste]:
    """Return the wasted work. `batched`: maps that should follow `batch`."""
    windows = list(_windows(nodes))
    result: list[Waste] = []
    explained = {node for _, inside in windows for node in inside}
    for seen, inside in (*_dropped(nodes), *_discarded(nodes), *_repeated(nodes, batched)):
        share = seen.figures["of_input"] = seen.figures["of_input"] / total_ns
        if share >= LEAST_SHARE and not explained & inside:
            explained |= inside
            result.append((seen, inside))
    explained_share = sum(seen.figures["of_input"] for seen, _ in result)
    for seen, _ in windows:
        seen.figures["of_input"] = max(0.0, 1.0 - explained_share) / len(windows)
    return [*result, *windows]


def _dropped(nodes: Nodes) -> Iterator[Waste]:
    for each in nodes:
        stage = each.stage
        if stage is None or each.kind not in _DROPS or not stage.below or not stage.below[0].elements:
            continue
        maps = [node for node in each if node.kind in MAPS and node.stage and not node.is_generator]
        dropped = _dropped_share(each, stage)
        if not maps or dropped < LEAST_DROPPED:
            continue
        work = sum(map_.stage.busy_ns for map_ in maps if map_.stage)
        figures = {"of_input": work * dropped, "wasted": dropped}
        if each.kind != "_FilterDataset" or _reads_unchanged(each.dataset, maps[0].dataset):
            figures |= {MOVABLE: 1.0, "gain": 1.0}
        what = f"{100 * dropped:.0f} % of what map({maps[0].name}) makes is dropped"
        yield Observation("input_dropped", each.line, _call_of(each), what, figures=figures), frozenset(maps)


def _dropped_share(node: Transformation, stage: PipelineStage) -> float:
    length = int(node.dataset._input_dataset.cardinality())
    if node.kind == "_SkipDataset":
        skipped = int(node.dataset._count)
        return min(1.0, skipped / length) if length > 0 else skipped / max(1, stage.below[0].elements)
    if node.kind == "_ShardDataset":
        return 1.0 - 1.0 / int(node.dataset._num_shards)
    return 1.0 - stage.elements / stage.below[0].elements


def _call_of(node: Transformation) -> str:
    if node.kind == "_SkipDataset":
        return f"skip({int(node.dataset._count)})"
    return "shard" if node.kind == "_ShardDataset" else f"filter({node.name})"


def _reads_unchanged(filtered: Any, mapped: Any) -> bool:
    before = filtered._input_dataset
    while type(before).__name__ in BETWEEN:
        before = before._input_dataset
    if before is not mapped:
        return False
    predicate, made = filtered._predicate.function.graph, mapped._map_func.function.graph
    for read, output in zip(predicate.inputs, made.outputs, strict=False):
        if not read.consumers():
            continue
        while output.op.type == "Identity":
            output = output.op.inputs[0]
        if output.op.type != "Placeholder":
            return False
    return True


def _discarded(nodes: Nodes) -> Iterator[Waste]:
    for each in nodes:
        passes = getattr(each.dataset, PASSES, 1)
        if each.kind != "CacheDataset" or each.stage is None or not each.stage.filling or passes < 2:
            continue
        work = sum(part.busy_ns for part in each.stage.below)
        figures = {"of_input": work, "gain": 1.0 - 1.0 / passes, "wasted": 1.0}
        seen = Observation("input_cache_discarded", each.line, "", f"in {passes} epochs", figures=figures)
        yield seen, frozenset(each)


def _repeated(nodes: Nodes, batched: Collection[Transformation]) -> Iterator[Waste]:
    """Yield the last map that makes the same results in each epoch."""
    if any(node.kind == "CacheDataset" or node.is_generator for node in nodes):
        return
    last, explained = None, set()
    for each in reversed(nodes):
        if each.kind in MAPS:
            ops = each.operations
            if ops is None or any(op.type in PYTHON or has_state(op) or "Random" in op.type for op in ops):
                break
            if each not in batched:
                last = each
                explained.add(each)
        elif each.kind in _FLAT:
            explained.add(each)
    if last is None or last.stage is None:
        return
    stage, length = last.stage, int(last.dataset.cardinality())
    if stage.kind == "MapAndBatch" and length > 0:
        elements = stage.elements * batch_size_of(nodes[0].dataset)
        stage = replace(stage, elements=min(length, elements))
    passes = getattr(last.dataset, PASSES, 1) - 1 + (stage.elements / length if length > 0 else 1.0)
    if passes <= 1.0:
        return
    work = stage.busy_ns + sum(part.busy_ns for part in stage.below)
    count = max(length, stage.elements)
    bytes_ = stage.bytes / max(1, stage.elements) * count
    figures = {"of_input": work, "gain": 1.0 - 1.0 / passes, "wasted": 1.0 - 1.0 / passes}
    figures[FITS] = float(bytes_ < MEMORY_SHARE * _available_bytes())
    figures[SHUFFLED] = float(any(node.kind == "_ShuffleDataset" for node in last))
    what = f"its {count} results take {bytes_ / 2**20:.0f} MiB" if stage.bytes else ""
    seen = Observation("input_no_cache", last.line, f"map({last.name})", what, figures=figures)
    yield seen, frozenset(explained)


def _windows(nodes: Nodes) -> Iterator[Waste]:
    for number, each in enumerate(nodes):
        inner = getattr(each.dataset, "_input_dataset", None)
        if each.kind not in _FLAT or type(inner).__name__ != "_WindowDataset":
            continue
        if any(node.kind in BATCHES for node in nodes[number:]) or not any(node.stage for node in nodes):
            continue
        later = [
            node
            for node in nodes[:number]
            if node.kind in MAPS and node.stage and node.stage.busy_ns < CHEAP_NS * node.stage.elements
        ]
        seen = Observation("input_windows", each.line, "", figures={"of_input": 0.0, "gain": 0.9})
        yield seen, frozenset((*later, *each))


def _available_bytes() -> float:
    memory = read_memory()
    return limited_memory(*memory)[1] if memory else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

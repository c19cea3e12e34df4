"""Finds the lines that make a script's input slow."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

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
    chain_of,
    filled_caches,
    has_state,
    is_generator,
    line_of_dataset,
    name_of_function,
    operations,
    stages_by_dataset,
    stages_of,
)
from tfmon.hooks.input_waste import waste_of
from tfmon.hooks.inspection import is_of_script, line_of_function
from tfmon.hooks.padding import padding_of
from tfmon.model.script_events import (
    BATCH,
    CACHE,
    DATASET,
    ENDLESS,
    FILE_CACHE,
    RANDOM,
    SEQUENTIAL,
    SHUFFLE,
    UNCACHED,
)

LEAST_ELEMENTS = 16
_WORK = ("_FlatMapDataset", "_InterleaveDataset", "_ParallelInterleaveDataset")
_BY_ELEMENT = frozenset((
    "Placeholder", "Const", "Identity", "NoOp", "Cast", "AddV2", "Add", "Sub", "Mul", "RealDiv", "Div", "Neg",
    "Abs", "Square", "Sqrt", "Rsqrt", "Exp", "Log", "Log1p", "Tanh", "Sigmoid", "Relu", "Maximum", "Minimum",
    "Pow", "ClipByValue", "Round", "Floor", "Equal", "Greater", "GreaterEqual", "Less", "LessEqual", "LogicalAnd",
    "LogicalOr", "LogicalNot", "SelectV2", "Sin", "Cos", "Reciprocal", "SquaredDifference",
))  # fmt: skip


def causes_of(
    iterator: Any,
    dataset: Any,
    prefetch: object,
    early: tuple[PipelineStage, ...] = (),
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
    total_ns = sum(stage.busy_ns for stage in stages) or 1.0
    by_dataset = stages_by_dataset(dataset, stages)
    if early and not any(stage.kind in STAGES_OF_MAPS for stage in stages):
        by_dataset = stages_by_dataset(dataset, early)
        total_ns = sum(stage.busy_ns for stage in early) or 1.0
    batched = frozenset(_better_batched(dataset, by_dataset))
    waste = waste_of(dataset, by_dataset, total_ns, batched) if stages else []
    explained = frozenset(key for _, keys in waste for key in keys)
    result = [
        *(seen for seen, _ in waste),
        *padding_of(dataset, by_dataset),
        *_of_generators(dataset, stages, total_ns),
        *_of_maps(dataset, by_dataset, total_ns, explained, batched),
    ]
    if prefetch == "off" and not _has_own_workers(dataset):
        before = [user for user in _users(dataset) if type(user).__name__ == "_PrefetchDataset"]
        last = before[0] if before else next(_users(dataset), None)
        what = "prefetch stands before other work" if before else "the pipeline does not end with prefetch"
        result.append(
            Observation(
                "input_no_prefetch", line_of_dataset(last), "the pipeline", what, figures={"of_overlap": 1.0}
            )
        )
    return result


def traits_of(dataset: Any) -> Iterator[str]:
    """Yield traits that select the advice."""
    yield DATASET
    every = list(chain_of(dataset))
    kinds = [type(node).__name__ for node in every]
    caches = [node for node in every if type(node).__name__ == "CacheDataset"]
    cached = {id(node) for cache in caches for node in chain_of(cache)}
    maps = [node for node in every if type(node).__name__ in MAPS and not is_generator(node)]
    random = [map_ for map_ in maps if any(map(has_state, operations(map_._map_func.function.graph) or ()))]
    work = {id(node) for node in every if type(node).__name__ in (*MAPS, *_WORK) and id(node) not in cached}
    traits = {
        BATCH: any(kind in BATCHES for kind in kinds),
        SHUFFLE: "_ShuffleDataset" in kinds,
        CACHE: bool(caches),
        FILE_CACHE: any(cache._filename.numpy() for cache in caches),
        SEQUENTIAL: any(type(node).__name__ == "_MapDataset" for node in random),
        UNCACHED: bool(work),
        RANDOM: bool(random),
        ENDLESS: int(dataset.cardinality()) == -1,
    }
    yield from (trait for trait, is_so in traits.items() if is_so)


def _users(dataset: Any) -> Iterator[Any]:
    for node in chain_of(dataset):
        function = getattr(getattr(node, "_map_func", None), "_func", None)
        if getattr(function, "__module__", "") == GENERATOR or is_of_script(function):
            yield node


def _of_generators(dataset: Any, stages: Collection[PipelineStage], total_ns: float) -> Iterator[Observation]:
    every = list(chain_of(dataset))
    sources = [node for node in every if is_generator(node)]
    counted = [stage for stage in stages if stage.kind == "Generator"]
    if len(sources) != len(counted):
        return
    for source, stage in zip(sources, counted, strict=True):
        share = {"of_input": stage.busy_ns / total_ns}
        generator = _generator_of(source)
        adapter = getattr(generator, "__self__", None)
        data = getattr(adapter, "py_dataset", None)
        if data is not None:
            kind, what = type(data), f"workers={data.workers}"
            line = line_of_function(kind.__getitem__)
            yield Observation("input_py_dataset", line, kind.__name__, what, figures=share)
            continue
        name = str(getattr(generator, "__name__", ""))
        cut = any(type(node).__name__ in BATCHES for node in every[: every.index(source)])
        by_script = is_of_script(generator) and name.isidentifier()
        what = f"from_generator({name})" if by_script else "a generator given to fit"
        yield Observation(
            "input_generator" if cut else "input_generator_batches", line_of_dataset(source), what, figures=share
        )


def _of_maps(
    dataset: Any,
    stages: dict[int, PipelineStage],
    total_ns: float,
    explained: Collection[int],
    batched: Collection[int],
) -> Iterator[Observation]:
    every, script_ids = list(chain_of(dataset)), set(map(id, _users(dataset)))
    for each in every:
        stage = stages.get(id(each)) if type(each).__name__ in MAPS else None
        operations_ = operations(each._map_func.function.graph) if stage is not None else None
        if stage is None or operations_ is None or id(each) in explained or id(each) not in script_ids:
            continue
        kinds = {operation.type for operation in operations_}
        kept = any(type(node).__name__ == "CacheDataset" for node in chain_of(each))
        more = ""
        if kinds & set(PYTHON):
            why = "input_python_function"
            more = "tf.py_function" if "EagerPyFunc" in kinds else "tf.numpy_function"
        elif id(each) in batched:
            size = _batch_after(every[: every.index(each)])
            why, more = "input_map_before_batch", f"in batches of {size}"
        elif kept and not any(has_state(op) for op in operations_):
            why = "input_map_after_cache"
        elif not stage.parallel and type(each).__name__ == "_MapDataset":
            why = "input_sequential_map"
        else:
            continue
        share = {"of_input": stage.busy_ns / total_ns}
        yield Observation(why, line_of_dataset(each), f"map({name_of_function(each)})", more, figures=share)


def _better_batched(dataset: Any, stages: dict[int, PipelineStage]) -> Iterator[int]:
    every = list(chain_of(dataset))
    for number, each in enumerate(every):
        stage = stages.get(id(each)) if type(each).__name__ in MAPS else None
        size = _batch_after(every[:number])
        if stage is None or size < 2:
            continue
        examples = stage.elements * (size if stage.kind == "MapAndBatch" else 1)
        ops = operations(each._map_func.function.graph)
        cheap = stage.busy_ns / max(1, examples) < CHEAP_NS
        if cheap and ops is not None and {op.type for op in ops} <= _BY_ELEMENT:
            yield id(each)


def _batch_after(later: list[Any]) -> int:
    for node in reversed(later):
        if type(node).__name__ in BATCHES:
            return int(node._batch_size)
        if type(node).__name__ not in BETWEEN:
            break
    return 0


def _generator_of(dataset: Any) -> Any:
    ahead, seen = [dataset._map_func._func], set()
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


def _has_own_workers(dataset: Any) -> bool:
    return any(
        getattr(getattr(_generator_of(node), "__self__", None), "enqueuer", None) is not None
        for node in chain_of(dataset)
        if is_generator(node)
    )

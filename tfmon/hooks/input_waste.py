"""Finds wasted work of a pipeline."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any, TypeAlias

from tfmon.hooks.cause_reports import Observation
from tfmon.hooks.dataset_chain import (
    BATCHES,
    BETWEEN,
    CHEAP_NS,
    MAPS,
    PYTHON,
    PipelineStage,
    batch_size_of,
    chain_of,
    has_state,
    is_generator,
    line_of_dataset,
    name_of_function,
    operations,
)
from tfmon.model.script_events import FITS, MOVABLE, SHUFFLED
from tfmon.system.limits import limited_memory, read_memory

PASSES = "_tfmon_passes"
LEAST_DROPPED, LEAST_SHARE = 0.2, 0.05
MEMORY_SHARE = 0.5
"""Share of the available memory that a cache may take."""
_DROPS = ("_SkipDataset", "_FilterDataset", "_ShardDataset")
_FLAT = ("_FlatMapDataset", "_InterleaveDataset", "_ParallelInterleaveDataset")


Waste: TypeAlias = tuple[Observation, frozenset[int]]
"""A cause, and the datasets that it explains."""


def begin_pass(dataset: Any) -> None:
    """Count a training pass over a dataset."""
    for each in chain_of(dataset):
        setattr(each, PASSES, getattr(each, PASSES, 0) + 1)


def waste_of(
    dataset: Any,
    stages: dict[int, PipelineStage],
    total_ns: float,
    batched: Collection[int],
) -> list[Waste]:
    """Return the wasted work. `batched`: ids of maps that should follow `batch`."""
    windows = list(_windows(dataset, stages))
    result: list[Waste] = []
    explained = {key for _, keys in windows for key in keys}
    candidates = (*_dropped(dataset, stages), *_discarded(dataset, stages), *_repeated(dataset, stages, batched))
    for seen, keys in candidates:
        share = seen.figures["of_input"] = seen.figures["of_input"] / total_ns
        if share >= LEAST_SHARE and not explained & keys:
            explained |= keys
            result.append((seen, keys))
    explained_share = sum(seen.figures["of_input"] for seen, _ in result)
    for seen, _ in windows:
        seen.figures["of_input"] = max(0.0, 1.0 - explained_share) / len(windows)
    return [*result, *windows]


def _dropped(dataset: Any, stages: dict[int, PipelineStage]) -> Iterator[Waste]:
    for each in chain_of(dataset):
        stage, kind = stages.get(id(each)), type(each).__name__
        if stage is None or kind not in _DROPS or not stage.below or not stage.below[0].elements:
            continue
        below = list(chain_of(each))[1:]
        maps = [
            node for node in below if type(node).__name__ in MAPS and id(node) in stages and not is_generator(node)
        ]
        dropped = _dropped_share(each, stage)
        if not maps or dropped < LEAST_DROPPED:
            continue
        work = sum(stages[id(map_)].busy_ns for map_ in maps)
        figures = {"of_input": work * dropped, "wasted": dropped}
        if kind != "_FilterDataset" or _reads_unchanged(each, maps[0]):
            figures |= {MOVABLE: 1.0, "gain": 1.0}
        what = f"{100 * dropped:.0f} % of what map({name_of_function(maps[0])}) makes is dropped"
        seen = Observation("input_dropped", line_of_dataset(each), _call_of(each), what, figures=figures)
        yield seen, frozenset(map(id, maps))


def _dropped_share(dataset: Any, stage: PipelineStage) -> float:
    kind, length = type(dataset).__name__, int(dataset._input_dataset.cardinality())
    if kind == "_SkipDataset":
        skipped = int(dataset._count)
        return min(1.0, skipped / length) if length > 0 else skipped / max(1, stage.below[0].elements)
    if kind == "_ShardDataset":
        return 1.0 - 1.0 / int(dataset._num_shards)
    return 1.0 - stage.elements / stage.below[0].elements


def _call_of(dataset: Any) -> str:
    kind = type(dataset).__name__
    if kind == "_SkipDataset":
        return f"skip({int(dataset._count)})"
    return "shard" if kind == "_ShardDataset" else f"filter({name_of_function(dataset)})"


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


def _discarded(dataset: Any, stages: dict[int, PipelineStage]) -> Iterator[Waste]:
    for each in chain_of(dataset):
        stage = stages.get(id(each))
        if type(each).__name__ != "CacheDataset" or stage is None or not stage.filling:
            continue
        passes = getattr(each, PASSES, 1)
        if passes < 2:
            continue
        work = sum(part.busy_ns for part in stage.below)
        figures = {"of_input": work, "gain": 1.0 - 1.0 / passes, "wasted": 1.0}
        seen = Observation(
            "input_cache_discarded", line_of_dataset(each), "", f"in {passes} epochs", figures=figures
        )
        yield seen, frozenset(map(id, chain_of(each)))


def _repeated(
    dataset: Any,
    stages: dict[int, PipelineStage],
    batched: Collection[int],
) -> Iterator[Waste]:
    """Yield the last map that makes the same results in each epoch."""
    every = list(chain_of(dataset))
    if any(type(node).__name__ == "CacheDataset" for node in every) or any(map(is_generator, every)):
        return
    last, explained = None, set()
    for each in reversed(every):
        kind = type(each).__name__
        if kind in MAPS:
            ops = operations(each._map_func.function.graph)
            if ops is None or any(op.type in PYTHON or has_state(op) or "Random" in op.type for op in ops):
                break
            if id(each) not in batched:
                last = each
                explained.add(id(each))
        elif kind in _FLAT:
            explained.add(id(each))
    stage = None if last is None else stages.get(id(last))
    if last is None or stage is None:
        return
    length = int(last.cardinality())
    if stage.kind == "MapAndBatch" and length > 0:
        stage = replace(stage, elements=min(length, stage.elements * batch_size_of(dataset)))
    passes = getattr(last, PASSES, 1) - 1 + (stage.elements / length if length > 0 else 1.0)
    if passes <= 1.0:
        return
    work = stage.busy_ns + sum(part.busy_ns for part in stage.below)
    count = max(length, stage.elements)
    bytes_ = stage.bytes / max(1, stage.elements) * count
    figures = {"of_input": work, "gain": 1.0 - 1.0 / passes, "wasted": 1.0 - 1.0 / passes}
    figures[FITS] = float(bytes_ < MEMORY_SHARE * _available_bytes())
    before = list(chain_of(last))
    figures[SHUFFLED] = float(any(type(node).__name__ == "_ShuffleDataset" for node in before))
    what = f"its {count} results take {bytes_ / 2**20:.0f} MiB" if stage.bytes else ""
    seen = Observation(
        "input_no_cache", line_of_dataset(last), f"map({name_of_function(last)})", what, figures=figures
    )
    yield seen, frozenset(explained)


def _windows(dataset: Any, stages: dict[int, PipelineStage]) -> Iterator[Waste]:
    every = list(chain_of(dataset))
    for number, each in enumerate(every):
        inner = getattr(each, "_input_dataset", None)
        if type(each).__name__ not in _FLAT or type(inner).__name__ != "_WindowDataset":
            continue
        if any(type(node).__name__ in BATCHES for node in every[number:]) or not stages:
            continue
        maps = [
            (node, stages[id(node)])
            for node in every[:number]
            if type(node).__name__ in MAPS and id(node) in stages
        ]
        later = [node for node, stage in maps if stage.busy_ns < CHEAP_NS * stage.elements]
        seen = Observation("input_windows", line_of_dataset(each), "", figures={"of_input": 0.0, "gain": 0.9})
        yield seen, frozenset(map(id, (*later, *chain_of(each))))


def _available_bytes() -> float:
    memory = read_memory()
    return limited_memory(*memory)[1] if memory else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

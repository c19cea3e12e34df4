"""Finds the lines of a script that make its input slow, from its datasets and from tf.data's own model.

The model is read between two steps; tfmon counts no element. A stage is reported only if the stages of the model
match the script's datasets.

Source: `tf.data.experimental.get_model_proto`, at the same path in TensorFlow 2.18 and 2.21. tf.data makes a
map without `num_parallel_calls` parallel unless its function has a state, and fuses a map with the batch after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tfmon.model.script_events import (
    BATCH,
    CACHE,
    DATASET,
    ENDLESS,
    FILE_CACHE,
    RANDOM,
    SEQUENTIAL,
    SHUFFLE,
    SKIPS,
    UNCACHED,
)
from tfmon.script.causes import Observation
from tfmon.script.hooking import FILES
from tfmon.script.looking import LIBRARIES, line_at, users_frame

MADE_AT = "_tfmon_at"
LEAST_ELEMENTS = 4
"""Minimum number of elements of a pipeline before its stages are compared."""
CHEAP_NS = 200_000
"""Below this time per example, most of a map is the start of its function."""
_MAPS = ("_MapDataset", "_ParallelMapDataset")
_WORK = ("_FlatMapDataset", "_InterleaveDataset", "_ParallelInterleaveDataset")
_MAP_STAGES = ("Map", "ParallelMap", "ParallelMapV2", "MapAndBatch")
_BATCHES = ("_BatchDataset", "_ParallelBatchDataset")
_BETWEEN = (
    "_OptionsDataset", "_PrefetchDataset", "_RepeatDataset", "_ShuffleDataset", "_TakeDataset", "_SkipDataset",
)  # fmt: skip
"""Transformations that do not change elements."""
_PYTHON = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
_GENERATOR = "tensorflow.python.data.ops.from_generator_op"
_BY_ELEMENT = frozenset((
    "Placeholder", "Const", "Identity", "NoOp", "Cast", "AddV2", "Add", "Sub", "Mul", "RealDiv", "Div", "Neg",
    "Abs", "Square", "Sqrt", "Rsqrt", "Exp", "Log", "Log1p", "Tanh", "Sigmoid", "Relu", "Maximum", "Minimum",
    "Pow", "ClipByValue", "Round", "Floor", "Equal", "Greater", "GreaterEqual", "Less", "LessEqual", "LogicalAnd",
    "LogicalOr", "LogicalNot", "SelectV2", "Sin", "Cos", "Reciprocal", "SquaredDifference",
))  # fmt: skip
"""Operations with the same result for a batch as for each of its examples."""
FILES.add(__file__)


@dataclass(frozen=True, slots=True)
class PipelineStage:
    """What tf.data has counted for one stage of an iterator."""

    kind: str
    elements: int
    busy_ns: float
    """Time without the stages that it reads from, divided by its threads."""
    parallel: bool


def made(dataset: Any) -> None:  # noqa: ANN401
    """Record on a dataset the line of the script that is making it."""
    frame = users_frame()
    setattr(dataset, MADE_AT, (frame.f_code.co_filename, frame.f_lineno))


def causes_of(iterator: Any, dataset: Any, prefetch: object) -> list[Observation] | None:  # noqa: ANN401
    """Return the causes of slow input of an iterator over `dataset`. None if it is too early or too late."""
    stages = stages_of(iterator)
    generators = sum(_is_generator(one) for one in chain_of(dataset))
    ended = bool(stages) and sum(one.kind == "Generator" for one in stages) < generators
    if ended or (stages and stages[0].elements < LEAST_ELEMENTS):
        return None
    total_ns = sum(one.busy_ns for one in stages) or 1.0
    result = [*_of_generators(dataset, stages, total_ns), *_of_maps(dataset, stages, total_ns)]
    if prefetch == "off" and not _has_own_workers(dataset):
        before = [one for one in _users(dataset) if type(one).__name__ == "_PrefetchDataset"]
        last = before[0] if before else next(_users(dataset), None)
        what = "prefetch stands before other work" if before else "the pipeline does not end with prefetch"
        result.append(
            Observation("input_no_prefetch", place_of(last), "the pipeline", what, figures={"of_overlap": 1.0})
        )
    return result


def stages_of(iterator: Any) -> list[PipelineStage]:  # noqa: ANN401
    """Return the stages of an iterator from its end to its sources. Empty if tf.data does not count them."""
    import tensorflow as tf
    from tensorflow.python.data.ops.iterator_ops import OwnedIterator

    if not isinstance(iterator, OwnedIterator) or not tf.executing_eagerly():
        return []
    try:
        model = tf.data.experimental.get_model_proto(iterator)
    except tf.errors.NotFoundError:  # its autotuner is off
        return []
    result: list[PipelineStage] = []
    ahead = [model.output]
    while ahead:
        node = model.nodes[ahead.pop()]
        ahead += reversed(node.inputs)
        threads = next((one for one in node.parameters if one.name == "parallelism"), None)
        busy_ns = node.processing_time / max(1.0, threads.value if threads is not None else 1.0)
        parallel = threads is not None and (threads.tunable or threads.value > 1)
        result.append(PipelineStage(node.name, node.num_elements, busy_ns, parallel))
    return result


def place_of(dataset: Any) -> str:  # noqa: ANN401
    """Return the line of the script that made a dataset, or ""."""
    path, number = getattr(dataset, MADE_AT, ("", 0))
    return line_at(path, number) if path else ""


def chain_of(dataset: Any) -> Iterator[Any]:  # noqa: ANN401
    """Yield a dataset and all its inputs, from its end to its sources."""
    ahead = [dataset]
    while ahead:
        yield (one := ahead.pop())
        ahead += reversed(one._inputs())


def traits_of(dataset: Any) -> Iterator[str]:  # noqa: ANN401
    """Yield traits of a dataset, which select the advice that applies to it."""
    yield DATASET
    every = list(chain_of(dataset))
    kinds = [type(one).__name__ for one in every]
    caches = [one for one in every if type(one).__name__ == "CacheDataset"]
    cached = {id(one) for cache in caches for one in chain_of(cache)}
    maps = [one for one in every if type(one).__name__ in _MAPS and not _is_generator(one)]
    random = [one for one in maps if any(map(_has_state, _operations(one._map_func.function.graph) or ()))]
    work = {id(one) for one in every if type(one).__name__ in (*_MAPS, *_WORK) and id(one) not in cached}
    skips = [one for one in every if type(one).__name__ == "_SkipDataset" and id(one) not in cached]
    found = {
        BATCH: any(kind in _BATCHES for kind in kinds),
        SHUFFLE: "_ShuffleDataset" in kinds,
        CACHE: bool(caches),
        FILE_CACHE: any(one._filename.numpy() for one in caches),
        SEQUENTIAL: any(type(one).__name__ == "_MapDataset" for one in random),
        UNCACHED: bool(work),
        RANDOM: bool(random),
        SKIPS: any(id(one) in work for skip in skips for one in chain_of(skip)),
        ENDLESS: int(dataset.cardinality()) == -1,
    }
    yield from (trait for trait, is_so in found.items() if is_so)


def _users(dataset: Any) -> Iterator[Any]:  # noqa: ANN401
    """Yield the datasets made by the script and not by a library."""
    for one in chain_of(dataset):
        function = getattr(getattr(one, "_map_func", None), "_func", None)
        module = str(getattr(function, "__module__", ""))
        if module == _GENERATOR or module.partition(".")[0] not in LIBRARIES:
            yield one


def _of_generators(dataset: Any, stages: list[PipelineStage], total_ns: float) -> Iterator[Observation]:  # noqa: ANN401
    every = list(chain_of(dataset))
    sources = [one for one in every if _is_generator(one)]
    counted = [one for one in stages if one.kind == "Generator"]
    if len(sources) != len(counted):
        return
    for source, stage in zip(sources, counted, strict=True):
        share = {"of_input": stage.busy_ns / total_ns}
        generator = _generator_of(source)
        adapter = getattr(generator, "__self__", None)
        data = getattr(adapter, "py_dataset", None)
        if data is not None:
            kind, what = type(data), f"workers={data.workers}"
            yield Observation("input_py_dataset", _place_of_code(kind), kind.__name__, what, figures=share)
            continue
        name = str(getattr(generator, "__name__", ""))
        own = str(getattr(generator, "__module__", "")).partition(".")[0] not in LIBRARIES
        cut = any(type(one).__name__ in _BATCHES for one in every[: every.index(source)])
        what = f"from_generator({name})" if own and name.isidentifier() else "a generator given to fit"
        yield Observation(
            "input_generator" if cut else "input_generator_batches", place_of(source), what, figures=share
        )


def _of_maps(dataset: Any, stages: list[PipelineStage], total_ns: float) -> Iterator[Observation]:  # noqa: ANN401
    """Yield the slow maps, each with the reason whose remedy helps most."""
    every, own = list(chain_of(dataset)), set(map(id, _users(dataset)))
    maps = [one for one in every if type(one).__name__ in _MAPS]
    counted = [one for one in stages if one.kind in _MAP_STAGES]
    if len(maps) != len(counted):
        return
    for each, stage in zip(maps, counted, strict=True):
        operations = _operations(each._map_func.function.graph)
        if id(each) not in own or operations is None:
            continue
        size = _batch_after(every[: every.index(each)])
        examples = stage.elements * (size if stage.kind == "MapAndBatch" else 1)
        each_ns = stage.busy_ns / max(1, examples)
        kinds = {operation.type for operation in operations}
        kept = any(type(one).__name__ == "CacheDataset" for one in chain_of(each))
        more = ""
        if kinds & set(_PYTHON):
            why = "input_python_function"
            more = "tf.py_function" if "EagerPyFunc" in kinds else "tf.numpy_function"
        elif size > 1 and each_ns < CHEAP_NS and kinds <= _BY_ELEMENT:
            why, more = "input_map_before_batch", f"in batches of {size}"
        elif kept and not any(_has_state(one) for one in operations):
            why = "input_map_after_cache"
        elif not stage.parallel and type(each).__name__ == "_MapDataset":
            why = "input_sequential_map"
        else:
            continue
        name = str(getattr(each._map_func._func, "__name__", ""))
        what = f"map({name})" if name.isidentifier() else "map(lambda)"
        share = {"of_input": stage.busy_ns / total_ns}
        yield Observation(why, place_of(each), what, more, figures=share)


def _batch_after(later: list[Any]) -> int:
    """Return the size of the batches of unchanged map elements, or 0."""
    for one in reversed(later):
        if type(one).__name__ in _BATCHES:
            return int(one._batch_size)
        if type(one).__name__ not in _BETWEEN:
            break
    return 0


def _operations(graph: Any) -> list[Any] | None:  # noqa: ANN401
    """Return the operations of a function and its callees, or None if they cannot be read."""
    result, ahead = [], [graph]
    while ahead:
        for operation in ahead.pop().get_operations():
            result.append(operation)
            if "PartitionedCall" in operation.type:
                called = graph._functions.get(operation.get_attr("f").name)
                if called is None or len(result) > MOST_OPERATIONS:
                    return None
                ahead.append(called.graph)
    return result


MOST_OPERATIONS = 10_000
"""Larger functions are not searched."""


def _has_state(operation: Any) -> bool:  # noqa: ANN401
    return bool(operation.op_def.is_stateful) and operation.type not in ("Placeholder", "StatefulPartitionedCall")


def _is_generator(dataset: Any) -> bool:  # noqa: ANN401
    function = getattr(getattr(dataset, "_map_func", None), "_func", None)
    return getattr(function, "__module__", "") == _GENERATOR


def _generator_of(dataset: Any) -> Any:  # noqa: ANN401
    """Return the function passed to `from_generator`, or None."""
    ahead, seen = [dataset._map_func._func], set()
    while ahead:
        function = ahead.pop()
        seen.add(id(function))
        for cell in getattr(function, "__closure__", None) or ():
            value = cell.cell_contents
            if hasattr(value, "_generator"):
                return value._generator
            if callable(value) and id(value) not in seen and getattr(value, "__module__", "") == _GENERATOR:
                ahead.append(value)
    return None


def _place_of_code(kind: type) -> str:
    code = getattr(getattr(kind, "__getitem__", None), "__code__", None)
    return line_at(code.co_filename, code.co_firstlineno) if code is not None else ""


def _has_own_workers(dataset: Any) -> bool:  # noqa: ANN401
    """Return whether Keras prefetches with its own workers, in which case tf.data does not."""
    return any(
        getattr(getattr(_generator_of(one), "__self__", None), "enqueuer", None) is not None
        for one in chain_of(dataset)
        if _is_generator(one)
    )

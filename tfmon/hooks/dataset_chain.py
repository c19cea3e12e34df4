"""Reads the transformations of a script's datasets, and what tf.data has counted for each of them.

Source: `tf.data.experimental.get_model_proto`, at the same path in TensorFlow 2.18 and 2.21. tf.data makes a
map without `num_parallel_calls` parallel unless its function has a state, and fuses a map with the batch after it.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Any

from tfmon.hooks.looking import line_at, users_frame
from tfmon.hooks.patches import FILES

MADE_AT = "_tfmon_at"
MAPS = ("_MapDataset", "_ParallelMapDataset")
BATCHES = ("_BatchDataset", "_ParallelBatchDataset")
BETWEEN = (
    "_OptionsDataset", "_PrefetchDataset", "_RepeatDataset", "_ShuffleDataset", "_TakeDataset", "_SkipDataset",
)  # fmt: skip
"""Transformations that do not change elements."""
PYTHON = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
GENERATOR = "tensorflow.python.data.ops.from_generator_op"
MOST_OPERATIONS = 10_000
"""Larger functions are not searched."""
CHEAP_NS = 200_000
"""Below this time per example, most of a map is the start of its function."""
STAGES_OF_MAPS = ("Map", "ParallelMap", "ParallelMapV2", "MapAndBatch")
_STAGES = {
    **dict.fromkeys(MAPS, STAGES_OF_MAPS),
    "_SkipDataset": ("FiniteSkip",),
    "_FilterDataset": ("Filter", "ParallelFilter"),
    "_ShardDataset": ("Shard",),
    "CacheDataset": ("MemoryCache", "FileCache"),
    "_PaddedBatchDataset": ("PaddedBatchV2",),
}
"""Names that tf.data's model has for the transformations of a kind."""
_NESTED = ("FlatMap", "Interleave", "ParallelInterleave")
"""Stages whose further inputs are iterators over datasets that a function makes."""
_CALLS = frozenset((
    "PartitionedCall", "StatefulPartitionedCall", "If", "StatelessIf", "While", "StatelessWhile", "Case",
    "StatelessCase", "MapDefun",
))  # fmt: skip
FILES.add(__file__)


@dataclass(frozen=True, slots=True)
class PipelineStage:
    """What tf.data has counted for one stage of an iterator."""

    kind: str
    elements: int
    busy_ns: float
    """Time without the stages that it reads from, divided by its threads."""
    parallel: bool
    bytes: int = 0
    """Size of all its elements."""
    consumed: int = 0
    """Size of all elements that it has read."""
    below: tuple[PipelineStage, ...] = ()
    """The stages that it reads from, to the sources."""

    @property
    def filling(self) -> bool:
        """Whether a cache reads from its input."""
        return any(not one.kind.endswith("Impl") for one in self.below)


def made(dataset: Any) -> None:
    """Record on a dataset the line of the script that is making it."""
    frame = users_frame()
    setattr(dataset, MADE_AT, (frame.f_code.co_filename, frame.f_lineno))


def place_of(dataset: Any) -> str:
    """Return the line of the script that made a dataset, or ""."""
    path, number = getattr(dataset, MADE_AT, ("", 0))
    return line_at(path, number) if path else ""


def chain_of(dataset: Any, without: Container[int] = ()) -> Iterator[Any]:
    """Yield a dataset and all its inputs, from its end to its sources, but no input of a dataset in `without`."""
    ahead = [dataset]
    while ahead:
        yield (one := ahead.pop())
        if id(one) not in without:
            ahead += reversed(one._inputs())


def batch_size_of(dataset: Any) -> int:
    """Return the size of the last batches in a pipeline, or 0."""
    sizes = (int(one._batch_size) for one in chain_of(dataset) if type(one).__name__ in BATCHES)
    return next(sizes, 0)


def stages_of(iterator: Any) -> tuple[PipelineStage, ...]:
    """Return the stages of an iterator from its end to its sources. Empty if tf.data does not count them."""
    import tensorflow as tf
    from tensorflow.python.data.ops.iterator_ops import OwnedIterator

    if not isinstance(iterator, OwnedIterator) or not tf.executing_eagerly():
        return ()
    try:
        model = tf.data.experimental.get_model_proto(iterator)
    except tf.errors.NotFoundError:  # its autotuner is off
        return ()

    def read(key: int) -> tuple[PipelineStage, ...]:
        node = model.nodes[key]
        inputs = list(node.inputs)
        if node.name.rstrip("V234") in _NESTED:  # the others are opened for each element, except for a generator
            inputs = [*inputs[:1], *(one for one in inputs[1:] if model.nodes[one].name == "Generator")]
        below = tuple(stage for one in inputs for stage in read(one))
        threads = next((one for one in node.parameters if one.name == "parallelism"), None)
        busy_ns = node.processing_time / max(1.0, threads.value if threads is not None else 1.0)
        parallel = threads is not None and (threads.tunable or threads.value > 1)
        sizes = node.bytes_produced, node.bytes_consumed
        stage = PipelineStage(node.name, node.num_elements, busy_ns, parallel, *sizes, below)
        return (stage, *below)

    return read(model.output)


def stages_by_dataset(dataset: Any, stages: tuple[PipelineStage, ...]) -> dict[int, PipelineStage]:
    """Return the stage of each dataset by its id. A kind whose numbers differ is left out.

    tf.data does not open the inputs of a filled cache.
    """
    filled = filled_caches(dataset, stages)
    result: dict[int, PipelineStage] = {}
    for kinds in dict.fromkeys(_STAGES.values()):
        datasets = [one for one in chain_of(dataset, filled) if _STAGES.get(type(one).__name__) == kinds]
        counted = [one for one in stages if one.kind in kinds]
        if len(datasets) == len(counted):
            result |= {id(one): stage for one, stage in zip(datasets, counted, strict=True)}
    return result


def filled_caches(dataset: Any, stages: tuple[PipelineStage, ...]) -> set[int]:
    """Return the ids of the caches that do not read from their input."""
    caches = [one for one in stages if one.kind in _STAGES["CacheDataset"]]
    every = [one for one in chain_of(dataset) if type(one).__name__ == "CacheDataset"]
    return {id(one) for one, stage in zip(every, caches, strict=False) if not stage.filling}


def operations(graph: Any, most: int = MOST_OPERATIONS) -> list[Any] | None:
    """Return the operations of a function and its callees, or None if they cannot be read."""
    result: list[Any] = []
    ahead, seen = [graph], set()
    while ahead:
        for operation in ahead.pop().get_operations():
            result.append(operation)
            if len(result) > most:
                return None
            for name in _called(operation) if operation.type in _CALLS else ():
                called = graph._functions.get(name)
                if called is None:
                    return None
                if name not in seen:
                    seen.add(name)
                    ahead.append(called.graph)
    return result


def _called(operation: Any) -> Iterator[str]:
    for value in operation.node_def.attr.values():
        yield from (one.name for one in (value.func, *value.list.func) if one.name)


def has_state(operation: Any) -> bool:
    """Return whether an operation is stateful."""
    return bool(operation.op_def.is_stateful) and operation.type not in ("Placeholder", *_CALLS)


def is_generator(dataset: Any) -> bool:
    """Return whether a dataset reads from a generator of Python."""
    function = getattr(getattr(dataset, "_map_func", None), "_func", None)
    return getattr(function, "__module__", "") == GENERATOR


def name_of_function(dataset: Any) -> str:
    """Return the name of the function of a `map` or `filter`, or `lambda`."""
    wrapped = getattr(dataset, "_map_func", None) or getattr(dataset, "_predicate", None)
    name = str(getattr(getattr(wrapped, "_func", None), "__name__", ""))
    return name if name.isidentifier() else "lambda"
